/* Plans of a GPU as one native call (device_launch.c).
 *
 * The driver's and cuBLAS's functions come as addresses: neither their headers nor their
 * libraries are needed to build this.
 */
#ifndef ADARRAY_DEVICE_LAUNCH_H
#define ADARRAY_DEVICE_LAUNCH_H

#include <stdint.h>

typedef struct DeviceRunner DeviceRunner;

/* What adarray_device_run returns; errors of the driver are their numbers, those of cuBLAS the
 * same from ADARRAY_DEVICE_BLAS on. Where all is well it may ask for adarray_device_record_on,
 * or for adarray_device_stage of adarray_device_restless. */
enum {
    ADARRAY_DEVICE_OK = 0,
    ADARRAY_DEVICE_ASKS = -1,
    ADARRAY_DEVICE_MOVES = -2,
    ADARRAY_DEVICE_BLAS = 1 << 16,
    ADARRAY_DEVICE_LINALG = 1 << 17, /* and those of cuSOLVER, and of cuBLAS's triangular solve */
    ADARRAY_DEVICE_FOURIER = 3 << 16, /* and those of cuFFT */
    ADARRAY_DEVICE_REFUSED = 1 << 20, /* plus the code that a kernel gave */
};
/* What adarray_device_count counts: launches of graphs, graphs that were made, nodes of them that
 * were changed, and graphs that were recorded again because products moved. */
enum {
    ADARRAY_REPLAYS, ADARRAY_CAPTURES, ADARRAY_UPDATES, ADARRAY_RECORDINGS, ADARRAY_DEVICE_COUNTS
};

/* Make a runner of steps that are written down as words, see launcher.py.
 *
 * `functions` are addresses in the order of DeviceFunctions. `addresses` has one for each slot; the
 * caller keeps it, and sets those that differ from run to run. `refused` is host memory that
 * kernels write codes to, or NULL if none does. To `checked`, unless it is NULL, one of them writes
 * as soon as it is known whether any does: 1 if none, 2 if one may. Returns NULL if memory is
 * short or the words are no steps. */
DeviceRunner *adarray_device_new(const int64_t *words, int64_t count, const uintptr_t *functions,
                                 uint64_t *addresses, int *refused, int *checked, void *blas);
void adarray_device_free(DeviceRunner *r);

/* Run all steps on a stream; from the third run on as a graph, if it can be recorded. */
int adarray_device_run(DeviceRunner *r, void *stream);
/* Launch steps `first` to `last` one by one. */
int adarray_device_steps(DeviceRunner *r, void *stream, int64_t first, int64_t last);
/* Wait for the stream and return what kernels refused, as adarray_device_run does. */
int adarray_device_wait(DeviceRunner *r, void *stream);

/* Let runs be recorded on a stream, with a cuBLAS handle for it, as so many graphs. Other runners
 * may use both: `recording`, at first 0, says if one does just now. The caller keeps all three.
 * A stream of NULL: never. */
void adarray_device_record_on(DeviceRunner *r, void *recorder, void *blas, int *recording,
                              int64_t graphs);
int64_t adarray_device_restless(const DeviceRunner *r);
/* Let products read a slot from a copy at this address from now on; 0: there is no memory. */
int adarray_device_stage(DeviceRunner *r, void *stream, int64_t slot, uint64_t address);
/* Let there be so many graphs. */
void adarray_device_limit(DeviceRunner *r, int64_t graphs);
int64_t adarray_device_failed_step(const DeviceRunner *r);
int64_t adarray_device_count(const DeviceRunner *r, int which);

#endif
