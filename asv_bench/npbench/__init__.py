"""The programs of NPBench, from a checkout of yours, differentiated by adarray and by others."""
