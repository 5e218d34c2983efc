/* Finds races in shared memory: part of device_host.h, compiled with HOST_RACES and -fsanitize=thread.
 *
 * The compiler calls the functions below at each access; no library of its own is linked. Two accesses
 * of different threads to one word, of which one writes, race unless a barrier of the block lies between
 * them, or, within a warp, a __syncwarp of the whole warp. Shuffles and reductions of a warp order
 * nothing, as on a GPU. What is found does not depend on the order in which threads run.
 */
#include <link.h>
#define HOST_UNSEEN __attribute__((no_sanitize("thread"), noinline))
enum Access { READ, WRITE, ATOMIC };

/* Who has accessed a word in one way since the block's last barrier: the warps, and of the last of them
 * the threads since its last barrier. */
struct Accesses { unsigned block, warps, warp, since, lanes; };
struct Word { Accesses by[3]; };

/* Variables in shared memory are those of a thread of the processor, as nothing else here is: so they
 * lie together. Sections would do as well if g++ obeyed them in templates. */
static thread_local char host_first;
static char *host_fixed;
static size_t host_fixed_size;
static Word host_words[(1 << 20) / 4], host_static_words[1 << 16];
static unsigned host_blocks = 1, host_warps[32], host_races; /* barriers so far; races */

HOST_UNSEEN static void host_note(Word &word, uintptr_t at, Access access, const void *caller)
{
    static const char *const names[] = {"reads", "writes", "adds to"};
    const unsigned thread = threadIdx.x, warp = thread / 32, since = host_warps[warp];
    for (int other = 0; other < 3; other++) {
        const Accesses &a = word.by[other];
        if (access == other && access != WRITE) continue;
        if (a.block != host_blocks) continue;
        const bool near = a.warp == warp && a.since == since && a.lanes & ~(1u << thread % 32);
        if (!(a.warps & ~(1u << warp)) && !near) continue;
        if (host_races++ < 8)
            fprintf(stderr, "race: thread %u %s byte %zu of shared memory, which another one %s, at %p\n",
                    thread, names[access], (size_t)at, names[other], caller);
    }
    Accesses &a = word.by[access];
    if (a.block != host_blocks) a = {host_blocks, 0, warp, since, 0};
    if (a.warp != warp || a.since != since) {
        a.warp = warp;
        a.since = since;
        a.lanes = 0;
    }
    a.warps |= 1u << warp;
    a.lanes |= 1u << thread % 32;
}

static int host_find(struct dl_phdr_info *info, size_t, void *)
{
    bool ours = false;
    size_t size = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &h = info->dlpi_phdr[i];
        if (h.p_type == PT_LOAD && (uintptr_t)host_near - info->dlpi_addr - h.p_vaddr < h.p_memsz)
            ours = true;
        if (h.p_type == PT_TLS) size = h.p_memsz;
    }
    if (!ours) return 0;
    host_fixed = (char *)info->dlpi_tls_data;
    host_fixed_size = size;
    return 1;
}

/* Before a launch: find where variables in shared memory lie. */
HOST_UNSEEN static void host_watch(void)
{
    host_races = 0; /* of a launch that lost a barrier, too */
    *(volatile char *)&host_first = 1; /* or they may lie nowhere yet */
    if (!dl_iterate_phdr(host_find, nullptr) || !host_fixed) abort();
}

HOST_UNSEEN static void host_access(const void *p, size_t size, Access access, const void *caller)
{
    const uintptr_t begin = (uintptr_t)p, near = begin - (uintptr_t)host_near;
    const uintptr_t fixed = begin - (uintptr_t)host_fixed;
    if (near < sizeof host_near) {
        for (uintptr_t w = near / 4; w <= (near + size - 1) / 4; w++)
            host_note(host_words[w], w * 4, access, caller);
    } else if (fixed < host_fixed_size) {
        if ((fixed + size - 1) / 4 >= 1 << 16) abort();
        for (uintptr_t w = fixed / 4; w <= (fixed + size - 1) / 4; w++)
            host_note(host_static_words[w], w * 4, access, caller);
    }
}

#define HOST_SEEN(name, access, size)                                                       \
    extern "C" HOST_UNSEEN void __tsan_##name(void *p)                                       \
    {                                                                                      \
        host_access(p, size, access, __builtin_return_address(0));                          \
    }
HOST_SEEN(read1, READ, 1) HOST_SEEN(read2, READ, 2) HOST_SEEN(read4, READ, 4)
HOST_SEEN(read8, READ, 8) HOST_SEEN(read16, READ, 16)
HOST_SEEN(write1, WRITE, 1) HOST_SEEN(write2, WRITE, 2) HOST_SEEN(write4, WRITE, 4)
HOST_SEEN(write8, WRITE, 8) HOST_SEEN(write16, WRITE, 16)
extern "C" HOST_UNSEEN void __tsan_read_range(void *p, size_t size)
{
    host_access(p, size, READ, __builtin_return_address(0));
}
extern "C" HOST_UNSEEN void __tsan_write_range(void *p, size_t size)
{
    host_access(p, size, WRITE, __builtin_return_address(0));
}
extern "C" HOST_UNSEEN void __tsan_func_entry(void *) {}
extern "C" HOST_UNSEEN void __tsan_func_exit(void) {}
extern "C" HOST_UNSEEN void __tsan_init(void) {}
