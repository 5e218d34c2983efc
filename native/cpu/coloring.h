/* Colourings of sparse patterns: which columns of a Jacobian, or of a symmetric Hessian, one
 * direction may combine.
 *
 * Patterns are compressed rows: `start` (n + 1 numbers) and `at`. Colours count from 0;
 * functions return their number, or -1 where memory runs out.
 */
#ifndef ADARRAY_COLORING_H
#define ADARRAY_COLORING_H

#include <stdint.h>

int64_t adarray_color_columns(int64_t n, uintptr_t row_start, uintptr_t row_at,
                              uintptr_t column_start, uintptr_t column_at, uintptr_t order,
                              uintptr_t colors);
int adarray_smallest_last(int64_t n, uintptr_t row_start, uintptr_t row_at,
                          uintptr_t column_start, uintptr_t column_at, uintptr_t order);
int64_t adarray_color_star(int64_t n, uintptr_t start, uintptr_t at, uintptr_t order,
                           uintptr_t colors);
int64_t adarray_color_acyclic(int64_t n, uintptr_t start, uintptr_t at, uintptr_t edge,
                              int64_t edges, uintptr_t order, uintptr_t colors);
int64_t adarray_peel(int64_t slots, int64_t places, uintptr_t place, uintptr_t other,
                     uintptr_t order);
void adarray_substitute(int64_t steps, uintptr_t from, uintptr_t to, uintptr_t sums,
                        uintptr_t values);
void adarray_pick(int64_t count, uintptr_t entries, uintptr_t where, uintptr_t sums,
                  uintptr_t values, int size);

#endif
