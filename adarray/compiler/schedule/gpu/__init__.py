"""How kernels run on a GPU: which threads share an iteration, and where arrays lie.

The counterpart of `adarray.compiler.schedule.vectors`. `facts` holds what is known of a kernel and
its integers, `choose` makes one of the variants of `schedules` of it, `launch` says how large a
launch it takes, and `outline` what a printer needs to know of each statement.
"""
