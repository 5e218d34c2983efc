/* Runs the steps of a plan on a GPU: kernels, products of cuBLAS, and graphs of them.
 *
 * Steps name buffers by slots; where slots are, stands in a table that the caller changes from
 * run to run. One launch takes the driver as long as the launch of a whole graph, so all runs
 * but the first replay one. Where addresses are others than a graph has, its kernels are
 * set to new ones; products hide theirs, so a plan with products is recorded anew, which is
 * cheaper than launches still, and the graph updated in its place. An input of products that
 * is elsewhere all the time is copied to a place that stays.
 */
#include "device_steps.h"
#include <stdlib.h>
#include <string.h>

enum {
    RELAXED = 2,       /* mode of capture: other threads may do what they like */
    MISSES = 16,       /* others after which it is copied */
    CREDIT = 8,        /* new graphs that may follow each other */
    REPLAYS = 64,      /* replays that pay for another one */
    FINE = 1,          /* of checks that are through: no kernel will refuse its data */
    NOT_READY = 600,   /* the driver's word for a stream that works */
    POLLS = 1 << 10,   /* looks at memory between two questions for the stream */
    STALE = 32,        /* replays of others after which a graph does not wait for what comes again */
};

/* -- steps ---------------------------------------------------------------------------------- */

/* Copy what products read elsewhere than it is. */
static int copy_staged(DeviceRunner *r, void *stream)
{
    int status = 0;
    for (int64_t i = 0; i < r->n_slots && !status; i++) {
        const SlotState *s = &r->slots[i];
        if (s->stage)
            status = r->driver.copy(s->stage, r->addresses[i] + (uint64_t)s->low,
                                    (size_t)s->bytes, stream);
    }
    return status;
}

int adarray_device_steps(DeviceRunner *r, void *stream, int64_t first, int64_t last)
{
    const int copied = first == 0 ? copy_staged(r, stream) : 0;
    if (copied) return copied;
    for (int64_t i = first; i < last; i++) {
        const int status = adarray_device_launch(r, &r->steps[i], stream, r->blas);
        if (status) {
            r->failed = i;
            return status;
        }
    }
    return 0;
}

int adarray_device_wait(DeviceRunner *r, void *stream)
{
    const int status = r->driver.synchronize(stream);
    if (status || r->refused == NULL) return status;
    const int code = *(volatile int *)r->refused;
    *(volatile int *)r->refused = 0;
    return code ? ADARRAY_DEVICE_REFUSED + code : 0;
}

/* Leave the core to its other thread for a moment. */
static void rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until it is known that no kernel refuses its data, which the stream may take much longer to
 * compute with; to the end where that is not so. */
static int wait_for_checks(DeviceRunner *r, void *stream)
{
    const volatile int *refused = r->refused, *checked = r->checked;
    for (unsigned i = 1; *checked == 0; i++) {
        if (i % POLLS == 0 && r->driver.query(stream) != NOT_READY) break; /* done, or failed */
        rest();
    }
    if (*checked == FINE && *refused == 0) return 0;
    return adarray_device_wait(r, stream);
}

/* -- graphs --------------------------------------------------------------------------------- */

static void drop(DeviceRunner *r, Graph *g)
{
    if (g->exec) r->driver.exec_destroy(g->exec);
    if (g->graph) r->driver.graph_destroy(g->graph);
    free(g->nodes);
    free(g->addresses);
    *g = r->graphs[--r->n_graphs];
    memset(&r->graphs[r->n_graphs], 0, sizeof *g);
}

/* Record all steps as a graph; `nodes` become those of kernels, unless it is NULL. */
static int record(DeviceRunner *r, void **graph, void **nodes)
{
    int status = r->driver.begin(r->recorder, RELAXED), active;
    if (status) return status;
    for (int64_t i = 0; i < r->n_steps && !status; i++) {
        uint64_t id;
        void *recording, **last;
        size_t count = 0;
        status = adarray_device_launch(r, &r->steps[i], r->recorder, r->recorder_blas);
        if (status || nodes == NULL || r->steps[i].kind != STEP_KERNEL) continue;
        status = r->driver.capture_info(r->recorder, &active, &id, &recording, &last, &count);
        if (!status && count != 1) status = -1;
        if (!status) nodes[i] = last[0];
    }
    const int ended = r->driver.end(r->recorder, graph);
    return status ? status : ended;
}

/* Make a graph for the addresses of this run; NULL if that cannot be. */
static Graph *capture(DeviceRunner *r)
{
    Graph *g = &r->graphs[r->n_graphs++];
    memset(g, 0, sizeof *g);
    g->nodes = calloc((size_t)r->n_steps, sizeof *g->nodes);
    g->addresses = malloc((size_t)r->n_slots * sizeof *g->addresses);
    int status = -1;
    if (g->nodes && g->addresses) {
        memcpy(g->addresses, r->addresses, (size_t)r->n_slots * sizeof *g->addresses);
        status = record(r, &g->graph, g->nodes);
        if (!status) status = r->driver.instantiate(&g->exec, g->graph, 0);
    }
    r->credit--;
    r->counts[ADARRAY_CAPTURES]++;
    if (!status) return g;
    drop(r, g);
    r->most_graphs = 0;
    return NULL;
}

/* Give the kernels of a graph that read or write elsewhere now the addresses of this run. */
static int update_nodes(DeviceRunner *r, Graph *g)
{
    int status = 0;
    for (int64_t i = 0; i < r->n_slots; i++) {
        if (g->addresses[i] == r->addresses[i]) continue;
        const SlotState *s = &r->slots[i];
        for (int64_t u = s->first; u < s->last; u++) r->dirty[r->users[u]] = 1;
        g->addresses[i] = r->addresses[i];
    }
    for (int64_t i = 0; i < r->n_steps; i++) {
        if (!r->dirty[i]) continue;
        r->dirty[i] = 0;
        if (status) continue;
        const Step *s = &r->steps[i];
        NodeParams p = {s->function, {s->grid[0], s->grid[1], s->grid[2]},
                        {s->block[0], s->block[1], s->block[2]}, s->shared, r->parameters, NULL};
        adarray_device_fill(r, s);
        status = r->driver.set_node(g->exec, g->nodes[i], &p);
        r->counts[ADARRAY_UPDATES]++;
    }
    return status;
}

/* Record the steps again and change a graph to that; if that fails it is as it was. */
static int record_again(DeviceRunner *r, Graph *g)
{
    struct { int result; void *node, *other; } info; /* CUgraphExecUpdateResultInfo */
    void *graph = NULL;
    int status = record(r, &graph, NULL);
    if (!status) status = r->driver.exec_update(g->exec, graph, &info);
    if (graph) r->driver.graph_destroy(graph);
    if (!status) memcpy(g->addresses, r->addresses, (size_t)r->n_slots * sizeof *g->addresses);
    r->counts[ADARRAY_RECORDINGS]++;
    return status;
}

/* Whether nothing in a graph has the address of a slot: only products use it, and a copy of it. */
static int is_free(const SlotState *s) { return s->stage && s->first == s->last; }

/* Count new addresses of slots that products use; note one that had too many. */
static void watch(DeviceRunner *r)
{
    for (int64_t i = 0; i < r->n_slots; i++) {
        SlotState *s = &r->slots[i];
        if (!s->product || s->stage || !s->bytes) continue;
        int k = 0;
        while (k < ADARRAY_SEEN && s->seen[k] != r->addresses[i]) k++;
        if (k < ADARRAY_SEEN) continue;
        s->seen[s->next] = r->addresses[i];
        s->next = (s->next + 1) % ADARRAY_SEEN;
        if (++s->misses > MISSES && r->restless < 0) r->restless = i;
    }
}

/* How much of a graph must change: 0 nothing, 1 kernels, 2 products. */
static int distance(const DeviceRunner *r, const Graph *g)
{
    int distance = 0;
    for (int64_t i = 0; i < r->n_slots; i++) {
        const SlotState *s = &r->slots[i];
        if (g->addresses[i] == r->addresses[i] || is_free(s)) continue;
        if (s->product && !s->stage) return 2;
        distance = 1;
    }
    return distance;
}

/* Return the graph that is nearest to this run, of equal ones that which is longest unused. */
static Graph *nearest(DeviceRunner *r, int *least)
{
    Graph *best = NULL;
    for (int64_t k = 0; k < r->n_graphs; k++) {
        Graph *g = &r->graphs[k];
        const int d = distance(r, g);
        if (best && (d > *least || (d == *least && g->used > best->used))) continue;
        best = g;
        *least = d;
        if (d == 0) break;
    }
    return best;
}

/* Whether this combination of addresses, or of those that products use, was among the last
 * ones; remember it. */
static int seen_before(DeviceRunner *r, int products)
{
    Keys *keys = &r->keys[products];
    uint64_t key = 14695981039346656037u;
    for (int64_t i = 0; i < r->n_slots; i++) {
        const SlotState *s = &r->slots[i];
        if (products ? s->product && !s->stage : !is_free(s))
            key = (key ^ r->addresses[i]) * 1099511628211u;
    }
    if (key == 0) key = 1;
    for (int i = 0; i < ADARRAY_KEYS; i++)
        if (keys->seen[i] == key) return 1;
    keys->seen[keys->next] = key;
    keys->next = (keys->next + 1) % ADARRAY_KEYS;
    return 0;
}

/* Make room for one more graph: that which is longest unused goes, if it is stale or `always`. */
static int room_for_graph(DeviceRunner *r, int always)
{
    if (r->credit <= 0 || r->most_graphs <= 0) return 0;
    if (r->n_graphs < r->most_graphs) return 1;
    Graph *oldest = &r->graphs[0];
    for (int64_t k = 1; k < r->n_graphs; k++)
        if (r->graphs[k].used < oldest->used) oldest = &r->graphs[k];
    if (!always && r->tick - oldest->used < STALE) return 0;
    drop(r, oldest);
    return 1;
}

/* Change a graph to what is recorded, or make a new one: if there is none, or cuBLAS takes other
 * kernels now. NULL: neither. */
static Graph *recorded(DeviceRunner *r, Graph *g)
{
    if (g != NULL && !record_again(r, g)) return g;
    return r->credit > 0 && r->n_graphs < r->most_graphs ? capture(r) : NULL;
}

/* Return a graph with the addresses of this run; NULL if there is none. */
static Graph *graph_for(DeviceRunner *r)
{
    int least = 0;
    Graph *g = nearest(r, &least);
    if (g && least == 0) return g;
    /* What comes again has a graph of its own: where products moved, that saves a recording. */
    const int again = seen_before(r, 0), products = seen_before(r, 1) && least == 2;
    if ((again || products) && room_for_graph(r, products)) g = NULL;
    else if (g && least == 1) {
        if (!update_nodes(r, g)) return g;
        drop(r, g);
        g = NULL;
    }
    watch(r);
    if (atomic_exchange(r->recording, 1)) return NULL;
    g = recorded(r, g);
    atomic_store(r->recording, 0);
    return g;
}

/* Whether the caller records a graph of their own on a stream. */
static int in_capture(const DeviceRunner *r, void *stream)
{
    int active = 0;
    uint64_t id;
    void *recording, **last;
    size_t count = 0;
    return !r->driver.capture_info(stream, &active, &id, &recording, &last, &count) && active == 1;
}

int adarray_device_run(DeviceRunner *r, void *stream)
{
    int status;
    Graph *g = NULL;
    r->failed = -1;
    if (r->most_graphs && in_capture(r, stream)) {
        /* Their graph can hold the steps, but no graph; and nothing may wait for its stream. */
        status = adarray_device_steps(r, stream, 0, r->n_steps);
        return !status && r->refused != NULL ? adarray_device_wait(r, stream) : status;
    }
    if (r->checked) *(volatile int *)r->checked = 0;
    if (r->recorder && r->most_graphs) g = graph_for(r);
    if (g) {
        g->used = ++r->tick;
        r->counts[ADARRAY_REPLAYS]++;
        if (++r->earned == REPLAYS) {
            r->earned = 0;
            if (r->credit < CREDIT) r->credit++;
        }
        status = copy_staged(r, stream);
        if (!status) status = r->driver.graph_launch(g->exec, stream);
    } else {
        status = adarray_device_steps(r, stream, 0, r->n_steps);
        r->asks += r->most_graphs && !r->recorder;
    }
    if (!status && r->refused != NULL)
        status = r->checked ? wait_for_checks(r, stream) : adarray_device_wait(r, stream);
    if (status) return status;
    if (r->restless >= 0) return ADARRAY_DEVICE_MOVES;
    return r->asks > 1 && !r->recorder ? ADARRAY_DEVICE_ASKS : ADARRAY_DEVICE_OK;
}

void adarray_device_record_on(DeviceRunner *r, void *recorder, void *blas, int *recording,
                              int64_t graphs)
{
    r->recorder = recorder;
    r->recorder_blas = blas;
    r->recording = (atomic_int *)recording;
    adarray_device_limit(r, recorder ? graphs : 0);
}

int64_t adarray_device_restless(const DeviceRunner *r) { return r->restless; }

int adarray_device_stage(DeviceRunner *r, void *stream, int64_t slot, uint64_t address)
{
    const int status = r->driver.synchronize(stream); /* graphs that are dropped may be running */
    if (status) return status;
    while (r->n_graphs) drop(r, &r->graphs[r->n_graphs - 1]);
    memset(r->keys, 0, sizeof r->keys);
    r->slots[slot].stage = address;
    r->slots[slot].bytes = address ? r->slots[slot].bytes : 0; /* never, if there is no memory */
    r->restless = -1;
    if (r->credit < CREDIT) r->credit++;
    return 0;
}

void adarray_device_limit(DeviceRunner *r, int64_t graphs)
{
    r->most_graphs = graphs < ADARRAY_MOST_GRAPHS ? graphs : ADARRAY_MOST_GRAPHS;
    while (r->n_graphs > r->most_graphs) drop(r, &r->graphs[r->n_graphs - 1]);
}

int64_t adarray_device_failed_step(const DeviceRunner *r) { return r->failed; }

int64_t adarray_device_count(const DeviceRunner *r, int which) { return r->counts[which]; }

/* -- making --------------------------------------------------------------------------------- */

static void *room(int64_t n, size_t size) { return calloc(n > 0 ? (size_t)n : 1, size); }

DeviceRunner *adarray_device_new(const int64_t *words, int64_t count, const uintptr_t *functions,
                                 uint64_t *addresses, int *refused, int *checked, void *blas)
{
    if (count < 2 || words[0] < 0 || words[1] < 0 || count < 2 + 2 * words[0]) return NULL;
    DeviceRunner *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    memcpy(&r->driver, functions, sizeof r->driver);
    r->n_slots = words[0], r->n_steps = words[1];
    r->addresses = addresses, r->refused = refused, r->checked = checked, r->blas = blas;
    r->credit = CREDIT, r->failed = r->restless = -1;
    r->words = room(count, sizeof *r->words);
    r->steps = room(r->n_steps, sizeof *r->steps);
    r->slots = room(r->n_slots, sizeof *r->slots);
    r->dirty = room(r->n_steps, 1);
    if (!r->words || !r->steps || !r->slots || !r->dirty) goto failed;
    memcpy(r->words, words, (size_t)count * sizeof *words);
    for (int64_t i = 0; i < r->n_slots; i++) {
        r->slots[i].low = words[2 + 2 * i];
        r->slots[i].bytes = words[3 + 2 * i];
    }
    if (!adarray_device_read(r, count)) goto failed;
    return r;
failed:
    adarray_device_free(r);
    return NULL;
}

void adarray_device_free(DeviceRunner *r)
{
    while (r->n_graphs) drop(r, &r->graphs[r->n_graphs - 1]);
    free(r->words);
    free(r->steps);
    free(r->slots);
    free(r->dirty);
    free(r->cells);
    free(r->parameters);
    free(r->users);
    free(r);
}
