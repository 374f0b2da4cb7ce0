/* Included by _fast.c, the one that is compiled: the constants of wire.py, the tables, and the memory written to.
 *
 * All state is of one process and guarded by the GIL. Only the limited API of CPython 3.10 is used, so that one build
 * serves every version from there on.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* As in wire.py, describe.py, selectors.py and pace.py. */
enum { ENTER = 1, EXIT = 2, RAISE = 3, STEP = 5, ACCEPT = 6, DEFINE_TENSOR = 18, DEFINE_SIGNATURE = 19 };
enum { WARM_UP, EAGER, CAPTURE, REPLAY };
enum { NONE, OTHER, TENSOR, FLAG, ENUM, NESTED, INT, LIST };
enum { SELF_OR_ARGUMENT = 1, RETURN = 2 };
enum { OFF, COUNT, LIGHT, FULL, LEVELS };
enum { MAX_INTS = 4096, MAX_DEPTH = 3, MAX_LIST = 256, MAX_SEQUENCE = 16, MAX_MAPPED = 1024, RECORD_SIZE = 32 };

/* As in fast.py. */
enum {
    F_CAPTURE = 1, F_REPLAY = 2, F_GRAPH_BEGIN = 4, F_GRAPH_END = 8, F_OPEN = 16, F_STEP = 32, F_PROCESS = 64, F_QUIET = 128,
    F_SILENT = 256, F_GRAPH = 512, F_RESULT = 1024, F_WAIT = 2048, F_COMPILE = 4096, F_DEVICE = 8192,
    F_AFTER = F_CAPTURE | F_REPLAY | F_GRAPH_BEGIN | F_GRAPH_END | F_OPEN | F_STEP | F_PROCESS | F_GRAPH | F_RESULT | F_WAIT |
              F_DEVICE,
};

enum {
    MAX_FIELDS = 256, MAX_WORDS = 1024, MAX_SLOTS = 256, MAX_VALUES = 64, MAX_THREADS = 256, MAX_LAYOUTS = 4000,
    MAX_ENTRIES = 40000, MAX_TEXTS = 256, LINKS = 64, CHECK_EVERY = 16, MAX_COUNTED = 32,
};
#define OWN_NUMBERS 0x80000000u /* numbers of definitions from here on are this module's, below they are Python's */
#define PREEMPTED_NS 500000u    /* no call of ours takes so long of itself */
#define PAUSE_NS 100000000u     /* a longer gap between steps is no step's time */

typedef struct Layout {
    struct Layout *next;
    PyObject *owner;                /* a type, or NULL for a side of a site */
    int count, step_count, deep;    /* deep: describing it may run Python */
    uint32_t number;
    PyObject **names, **types;      /* strong references, `count` of them; names are NULL for a side of a site */
    struct { uint16_t index; uint8_t kind, keep; } *steps;
} Layout;

/* A tensor's looks or a signature. `slots` are the numbers that its definition names. */
typedef struct {
    uint64_t hash;
    uint64_t *words;
    uint32_t *slots;
    uint8_t *slot_kinds;
    uint32_t length, slot_count, generation, layout;
} Entry;

typedef struct { int root, is_step; Py_ssize_t position; PyObject *name, *parts; } Selector;
typedef struct { int count; Selector *selectors; PyObject *names, *owner; Layout *layouts; } Side;
typedef struct { int number, flags, on; Side side[3]; PyObject *site; } Site; /* before, after, and a step's result */
typedef struct { unsigned long ident; int captures, graphs, replays, busy, devices; uint64_t wait_ns; } Thread;
typedef struct { int count; int64_t values[MAX_INTS]; } Ints;

/* What is left to Python; see fast.py. */
static PyObject *on_layout, *on_text, *on_object, *on_list, *on_ensure, *on_rotate, *on_step, *on_process, *on_failed,
    *on_read, *on_forget, *on_slot, *on_device, *gate, *watch;
static PyObject *unread, *ordinals, *every_part, *devices, *torch_c;
static PyObject *s_shape, *s_stride, *s_dtype, *s_device, *s_data_address, *s_forward_mode, *s_reqs, *s_bs, *s_width, *s_graph;
static int pointers;

static uint8_t *stream, *head;
static int stream_fd = -1;
static uint64_t stream_at, stream_end;
static uint32_t generation = 1;

/* Steps, as Pace decides. */
static int level = FULL;
static uint32_t last_step, step_now, every = 1, light_every = 1, full_until, check_at;
static int forced = -1, attentive;
static int64_t first_step, past_step = INT64_MAX;
static uint64_t step_ns;
static uint64_t spent_ns[LEVELS], level_steps[LEVELS], level_measured[LEVELS], level_calls[LEVELS], busy_ns, busy_steps;
static int measuring = 1; /* whether what the recorder costs is measured in this step */

static uint64_t records, not_taken, definitions, warm_ns, warm, cold_ns, cold, new_things;
static struct { int records, definitions, step, not_taken, warm_ns, warm, cold_ns, cold, inside, began, size, mode; } head_at;

static Site **sites;
static int site_count;
static Thread threads[MAX_THREADS];
static int thread_count;
static struct { void *result; uint32_t step; uint8_t *slot; int recorded; } links[LINKS];
static unsigned link_at;

static Layout *by_type[1024];
static int layout_count, inside, forget_soon, forget_all;
static Entry *entries;
static uint32_t entry_count, entry_room, first_number = OWN_NUMBERS;
static uint32_t *table, table_size; /* of an entry's place plus one */
static struct { uint64_t key; uint32_t number; } texts[MAX_TEXTS];
static int text_count;
static struct { uint32_t number, generation; } python_defined[1 << 13];
static PyTypeObject *counted[MAX_COUNTED]; /* of a list that begins with one of these, only the length is recorded */
static int counted_count;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put(int where, uint64_t value) {
    if (head != NULL) memcpy(head + where, &value, 8);
}
