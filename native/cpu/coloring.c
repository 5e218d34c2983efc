/* Colourings of sparse patterns; coloring.h says what the functions take.
 *
 * Columns that no row shares have one colour (Curtis, Powell and Reid); the greedy algorithms are
 * those of Gebremedhin, Manne and Pothen, those of stars and cycles of Gebremedhin and others.
 *
 * References:
 * - A. R. Curtis, M. J. D. Powell, J. K. Reid, "On the estimation of sparse Jacobian matrices",
 *   IMA J. Appl. Math. 13 (1974), 117-119.
 * - A. H. Gebremedhin, F. Manne, A. Pothen, "What color is your Jacobian? Graph coloring for
 *   computing derivatives", SIAM Review 47 (2005), 629-705.
 * - A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen, "New acyclic and star coloring
 *   algorithms with application to computing Hessians", SIAM J. Sci. Comput. 29 (2007),
 *   1042-1072.
 */
#include "coloring.h"

#include <stdlib.h>
#include <string.h>

typedef int32_t Index;

/* Return an array of `n` numbers -1; NULL where memory runs out. */
static Index *minus_ones(int64_t n)
{
    Index *numbers = malloc((size_t)(n > 0 ? n : 1) * sizeof(Index));
    if (numbers) memset(numbers, 0xff, (size_t)n * sizeof(Index));
    return numbers;
}

/* Return the smallest colour that `forbidden` does not hold for `v`; note that it is used. */
static Index smallest(const Index *forbidden, Index v, Index *used)
{
    Index c = 0;
    while (c < *used && forbidden[c] == v) c++;
    if (c == *used) (*used)++;
    return c;
}

/* Greedy colouring in which columns that meet in a row get different colours. */
int64_t adarray_color_columns(int64_t n, uintptr_t row_start, uintptr_t row_at,
                              uintptr_t column_start, uintptr_t column_at, uintptr_t order,
                              uintptr_t colors)
{
    const int64_t *rows = (const int64_t *)row_start, *columns = (const int64_t *)column_start;
    const Index *across = (const Index *)row_at, *down = (const Index *)column_at;
    const Index *first = (const Index *)order;
    Index *color = (Index *)colors, used = 0;
    Index *forbidden = minus_ones(n);
    if (!forbidden) return -1;
    for (int64_t k = 0; k < n; k++) color[k] = -1;
    for (int64_t k = 0; k < n; k++) {
        const Index v = first[k];
        for (int64_t i = columns[v]; i < columns[v + 1]; i++) {
            const Index r = down[i];
            for (int64_t j = rows[r]; j < rows[r + 1]; j++)
                if (color[across[j]] >= 0) forbidden[color[across[j]]] = v;
        }
        color[v] = smallest(forbidden, v, &used);
    }
    free(forbidden);
    return used;
}

/* Order columns such that each has the fewest neighbours among those before it. */
int adarray_smallest_last(int64_t n, uintptr_t row_start, uintptr_t row_at,
                          uintptr_t column_start, uintptr_t column_at, uintptr_t order)
{
    const int64_t *rows = (const int64_t *)row_start, *columns = (const int64_t *)column_start;
    const Index *across = (const Index *)row_at, *down = (const Index *)column_at;
    Index *last = (Index *)order;
    /* Lists of the columns of each degree; `seen` says for whom a column was counted last. */
    Index *degree = minus_ones(n), *seen = minus_ones(n);
    Index *head = minus_ones(n), *next = minus_ones(n), *before = minus_ones(n);
    const int ok = degree && seen && head && next && before;
    int64_t low = 0;
    for (int64_t v = 0; ok && v < n; v++) {
        Index d = 0;
        seen[v] = (Index)v;
        for (int64_t i = columns[v]; i < columns[v + 1]; i++)
            for (int64_t j = rows[down[i]]; j < rows[down[i] + 1]; j++)
                if (seen[across[j]] != v) seen[across[j]] = (Index)v, d++;
        degree[v] = d;
        next[v] = head[d];
        if (head[d] >= 0) before[head[d]] = (Index)v;
        head[d] = (Index)v;
    }
    if (ok) memset(seen, 0xff, (size_t)n * sizeof(Index));
    for (int64_t k = n - 1; ok && k >= 0; k--) {
        while (head[low] < 0) low++;
        const Index v = head[low];
        head[low] = next[v];
        if (next[v] >= 0) before[next[v]] = -1;
        last[k] = v;
        degree[v] = -1;
        seen[v] = v;
        for (int64_t i = columns[v]; i < columns[v + 1]; i++)
            for (int64_t j = rows[down[i]]; j < rows[down[i] + 1]; j++) {
                const Index w = across[j];
                if (seen[w] == v || degree[w] < 0) continue;
                seen[w] = v;
                if (before[w] >= 0) next[before[w]] = next[w];
                else head[degree[w]] = next[w];
                if (next[w] >= 0) before[next[w]] = before[w];
                const Index d = --degree[w];
                next[w] = head[d];
                before[w] = -1;
                if (head[d] >= 0) before[head[d]] = w;
                head[d] = w;
                if (d < low) low = d;
            }
    }
    free(degree), free(seen), free(head), free(next), free(before);
    return ok ? 0 : -1;
}

/* Greedy colouring of a symmetric pattern without its diagonal, in which every path of four
 * vertices has three colours. */
int64_t adarray_color_star(int64_t n, uintptr_t start_, uintptr_t at_, uintptr_t order,
                           uintptr_t colors)
{
    const int64_t *start = (const int64_t *)start_;
    const Index *at = (const Index *)at_, *first = (const Index *)order;
    Index *color = (Index *)colors, used = 0;
    Index *forbidden = minus_ones(n);
    if (!forbidden) return -1;
    for (int64_t k = 0; k < n; k++) color[k] = -1;
    for (int64_t k = 0; k < n; k++) {
        const Index v = first[k];
        for (int64_t i = start[v]; i < start[v + 1]; i++)
            if (color[at[i]] >= 0) forbidden[color[at[i]]] = v;
        for (int64_t i = start[v]; i < start[v + 1]; i++) {
            const Index w = at[i];
            for (int64_t j = start[w]; j < start[w + 1]; j++) {
                const Index x = at[j];
                if (x == v || color[x] < 0 || forbidden[color[x]] == v) continue;
                /* v and x may be equal only if w is the middle of all that joins them. */
                int free_path = color[w] < 0;
                for (int64_t l = start[x]; !free_path && l < start[x + 1]; l++)
                    free_path = at[l] != w && color[at[l]] == color[w];
                if (free_path) forbidden[color[x]] = v;
            }
        }
        color[v] = smallest(forbidden, v, &used);
    }
    free(forbidden);
    return used;
}

static Index root_of(Index *parent, Index e)
{
    while (parent[e] != e) e = parent[e] = parent[parent[e]];
    return e;
}

static void join(Index *parent, Index a, Index b)
{
    a = root_of(parent, a), b = root_of(parent, b);
    if (a < b) parent[b] = a;
    else parent[a] = b;
}

/* Greedy colouring of a symmetric pattern without its diagonal, in which every cycle has three
 * colours. `edge` numbers the edge of each entry; the edges of two colours form trees. */
int64_t adarray_color_acyclic(int64_t n, uintptr_t start_, uintptr_t at_, uintptr_t edge_,
                              int64_t edges, uintptr_t order, uintptr_t colors)
{
    const int64_t *start = (const int64_t *)start_;
    const Index *at = (const Index *)at_, *edge = (const Index *)edge_;
    const Index *first = (const Index *)order;
    Index *color = (Index *)colors, used = 0;
    Index *forbidden = minus_ones(n), *parent = minus_ones(edges);
    /* The vertex that visited a tree last, and the neighbour by which it came; the vertex that
     * has met a colour last, and its edge to it. */
    Index *visitor = minus_ones(edges), *way = minus_ones(edges);
    Index *met = minus_ones(n), *by = minus_ones(n);
    const int ok = forbidden && parent && visitor && way && met && by;
    for (int64_t k = 0; k < n; k++) color[k] = -1;
    for (int64_t k = 0; ok && k < n; k++) {
        const Index v = first[k];
        for (int64_t i = start[v]; i < start[v + 1]; i++)
            if (color[at[i]] >= 0) forbidden[color[at[i]]] = v;
        for (int64_t i = start[v]; i < start[v + 1]; i++) {
            const Index w = at[i];
            if (color[w] < 0) continue;
            for (int64_t j = start[w]; j < start[w + 1]; j++) {
                const Index x = at[j];
                if (x == v || color[x] < 0 || forbidden[color[x]] == v) continue;
                const Index tree = root_of(parent, edge[j]);
                if (visitor[tree] != v) visitor[tree] = v, way[tree] = w;
                else if (way[tree] != w) forbidden[color[x]] = v;
            }
        }
        color[v] = smallest(forbidden, v, &used);
        for (int64_t i = start[v]; i < start[v + 1]; i++) {
            const Index w = at[i];
            if (color[w] < 0) continue;
            parent[edge[i]] = edge[i];
            if (met[color[w]] != v) met[color[w]] = v, by[color[w]] = edge[i];
            else join(parent, edge[i], by[color[w]]);
        }
        for (int64_t i = start[v]; i < start[v + 1]; i++) {
            const Index w = at[i];
            if (color[w] < 0) continue;
            for (int64_t j = start[w]; j < start[w + 1]; j++)
                if (at[j] != v && color[at[j]] == color[v]) join(parent, edge[i], edge[j]);
        }
    }
    free(forbidden), free(parent), free(visitor), free(way), free(met), free(by);
    return ok ? used : -1;
}

/* Find an order in which entries are known from sums of entries.
 *
 * Entry s is a part of sum place[s], and the same entry is slot other[s]. The slot that stands
 * alone in its sum is known; then it can be subtracted from the other one's sum. `order` gets the
 * slots; their number is returned, less than half of all if some cannot be known.
 */
int64_t adarray_peel(int64_t slots, int64_t places, uintptr_t place_, uintptr_t other_,
                     uintptr_t order)
{
    const Index *place = (const Index *)place_, *other = (const Index *)other_;
    Index *queue = (Index *)order;
    Index *count = calloc((size_t)(places > 0 ? places : 1), sizeof(Index));
    Index *mixed = calloc((size_t)(places > 0 ? places : 1), sizeof(Index));
    char *known = calloc((size_t)(slots > 0 ? slots : 1), 1);
    int64_t ordered = -1;
    if (count && mixed && known) {
        ordered = 0;
        for (int64_t s = 0; s < slots; s++) count[place[s]]++, mixed[place[s]] ^= (Index)s;
        for (int64_t s = 0; s < slots; s++)
            if (count[place[s]] == 1 && !known[s] && !known[other[s]])
                queue[ordered++] = (Index)s, known[s] = 1;
        for (int64_t k = 0; k < ordered; k++) {
            const Index s = queue[k], t = other[s], q = place[t];
            count[place[s]]--, mixed[place[s]] ^= s;
            if (t == s) continue;
            known[t] = 1;
            count[q]--, mixed[q] ^= t;
            if (count[q] != 1) continue;
            const Index u = mixed[q];
            if (!known[u] && !known[other[u]]) queue[ordered++] = u, known[u] = 1;
        }
    }
    free(count), free(mixed), free(known);
    return ordered;
}

/* Compute entries in such an order: values[k] = sums[from[k]], which is taken out of the sum
 * to[k]; -1 if there is none. */
void adarray_substitute(int64_t steps, uintptr_t from_, uintptr_t to_, uintptr_t sums_,
                        uintptr_t values_)
{
    const int64_t *from = (const int64_t *)from_, *to = (const int64_t *)to_;
    double *sums = (double *)sums_, *values = (double *)values_;
    for (int64_t k = 0; k < steps; k++) {
        values[k] = sums[from[k]];
        if (to[k] >= 0) sums[to[k]] -= values[k];
    }
}

/* values[entries[k]] = sums[where[k]], of 4 or 8 bytes each; entries may be 0, for k itself. */
void adarray_pick(int64_t count, uintptr_t entries_, uintptr_t where_, uintptr_t sums_,
                  uintptr_t values_, int size)
{
    const Index *entries = (const Index *)entries_, *where = (const Index *)where_;
    const uint64_t *wide = (const uint64_t *)sums_;
    const uint32_t *narrow = (const uint32_t *)sums_;
    uint64_t *wides = (uint64_t *)values_;
    uint32_t *narrows = (uint32_t *)values_;
    if (size == 8 && !entries)
        for (int64_t k = 0; k < count; k++) wides[k] = wide[where[k]];
    else if (size == 8)
        for (int64_t k = 0; k < count; k++) wides[entries[k]] = wide[where[k]];
    else if (!entries)
        for (int64_t k = 0; k < count; k++) narrows[k] = narrow[where[k]];
    else
        for (int64_t k = 0; k < count; k++) narrows[entries[k]] = narrow[where[k]];
}
