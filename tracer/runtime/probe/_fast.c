/* The recorder's hot path in C: the same records as probe.py, describe.py and recorder.py write, for less.
 *
 * What is met for the first time (a layout, a signature, a full segment) is left to the Python code; what was met
 * before is found again here. All state is of one process and guarded by the GIL; a build without GIL does not load
 * this module. Only the limited API of CPython 3.10 is used, so that one build serves every version from there on.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* As in wire.py and describe.py; checked when the module is set up. */
enum { ENTER = 1, EXIT = 2, RAISE = 3 };
enum { WARM_UP, EAGER, CAPTURE, REPLAY };
enum { NONE, OTHER, TENSOR, FLAG, ENUM, NESTED, INT, LIST };
enum { MAX_INTS = 4096, MAX_DEPTH = 3, MAX_LIST = 256, MAX_SEQUENCE = 16, RECORD_SIZE = 32 };

enum { F_CAPTURE = 1, F_REPLAY = 2, F_GRAPH_BEGIN = 4, F_GRAPH_END = 8, F_TURN = 16, F_RESULT = 32, F_QUIET = 64,
       F_LIGHT = 128,
       F_AFTER = F_CAPTURE | F_REPLAY | F_GRAPH_BEGIN | F_GRAPH_END | F_TURN | F_RESULT };
enum { OFF, LIGHT, FULL };
enum { MAX_FIELDS = 256, MAX_WORDS = 1024, MAX_THREADS = 256, MAX_CHAIN = 64,
       MAX_SIGNATURES = 20000, MAX_VALUES = 64 };

/* The part of DLPack's exchange table that is used (dlpack.h). */
typedef struct { uint32_t major, minor; } DLVersion;
typedef struct { int32_t device_type, device_id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape; int64_t *strides; uint64_t byte_offset;
} DLTensor;
typedef struct {
    DLVersion version; void *prev; void *allocator; void *from_object; void *to_object;
    int (*tensor_from_object)(void *object, DLTensor *out); void *current_stream;
} DLExchange;

typedef struct Layout {
    struct Layout *next;
    PyObject *owner;            /* a type, or NULL for a side of a site */
    int count, step_count, deep; /* deep: describing it may run Python */
    uint32_t number;
    PyObject **names;           /* strong references, `count` of them; then the types */
    PyObject **types;
    struct { uint16_t index; uint8_t kind, keep; } *steps;
} Layout;

typedef struct { uint64_t hash; uint32_t length, number; uint64_t *words; } Signature;

typedef struct { int root; Py_ssize_t position; PyObject *name, *parts, *call; } Selector;

typedef struct { int count; Selector *selectors; PyObject *names, *owner; Layout *layouts; } Side;

typedef struct { int number, flags, on; Side side[2]; PyObject *site; } Site;

typedef struct { unsigned long ident; int used, captures, graphs, replays, busy; } Thread;

typedef struct { int count; int64_t values[MAX_INTS]; } Ints;

/* What is left to Python; see fast.py. */
static PyObject *on_layout, *on_signature, *on_object, *on_list, *on_room, *on_turn, *on_result, *on_failed, *on_read,
    *on_forget;
static PyObject *unread, *ordinals, *devices, *torch_c;
static PyObject *s_shape, *s_stride, *s_dtype, *s_device, *s_data_address, *s_every;
static DLExchange *exchange;
static int pointers;

static uint8_t *stream, *head;
static uint64_t stream_at, stream_end;
static uint32_t generation = 1, step_now;
static int level, stepped, inside, forget_soon;
static struct { uint32_t number, generation; } defined[1 << 14];
static uint64_t records, not_taken, spent_ns, warm_ns, warm, cold_ns, cold, slow_calls;
static struct { int records, step, not_taken, warm_ns, warm, cold_ns, cold; } head_at;

static Site **sites;
static int site_count;
static Thread threads[MAX_THREADS];
static int thread_count;
static Signature *table;
static uint32_t table_size, table_used;
static Layout *by_type[1024];
static uint32_t crc_table[8][256];

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- CRC-32, as zlib's --------------------------------------------------------------------------------------- */

static void crc_prepare(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc_table[k][n] = crc_table[0][crc_table[k - 1][n] & 255] ^ (crc_table[k - 1][n] >> 8);
}

static uint32_t crc32_of(const uint8_t *data, size_t length) {
    uint32_t c = 0xFFFFFFFFu;
    while (length >= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= c;
        c = crc_table[7][low & 255] ^ crc_table[6][(low >> 8) & 255] ^ crc_table[5][(low >> 16) & 255] ^
            crc_table[4][low >> 24] ^ crc_table[3][high & 255] ^ crc_table[2][(high >> 8) & 255] ^
            crc_table[1][(high >> 16) & 255] ^ crc_table[0][high >> 24];
        data += 8;
        length -= 8;
    }
    while (length--) c = crc_table[0][(c ^ *data++) & 255] ^ (c >> 8);
    return ~c;
}

/* --- Tensors --------------------------------------------------------------------------------------------------- */

/* Appends what tells a tensor's looks apart to `words`; returns how many, or -1 with an error set. */
static int tensor_words(PyObject *tensor, uint64_t *words, int room, int64_t *address) {
    if (exchange != NULL) {
        DLTensor t;
        if (exchange->tensor_from_object(tensor, &t) == 0) {
            if (room < 3 + 2 * t.ndim) return 0;
            words[0] = (uint64_t)(uint32_t)t.ndim | (uint64_t)t.dtype.code << 32 | (uint64_t)t.dtype.bits << 40 |
                       (uint64_t)t.dtype.lanes << 48;
            words[1] = (uint64_t)(uint32_t)t.device.device_type | (uint64_t)(uint32_t)t.device.device_id << 32;
            memcpy(words + 2, t.shape, 8 * (size_t)t.ndim);
            memcpy(words + 2 + t.ndim, t.strides, 8 * (size_t)t.ndim);
            *address = (int64_t)((uintptr_t)t.data + t.byte_offset);
            return 2 + 2 * t.ndim;
        }
        PyErr_Clear(); /* sparse, conjugated ...: the way below */
    }
    PyObject *shape = PyObject_GetAttr(tensor, s_shape);
    if (shape == NULL) return -1;
    PyObject *stride = PyObject_CallMethodObjArgs(tensor, s_stride, NULL);
    if (stride == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) { Py_DECREF(shape); return -1; }
        PyErr_Clear();
        stride = PyTuple_New(0);
    }
    PyObject *dtype = PyObject_GetAttr(tensor, s_dtype), *device = PyObject_GetAttr(tensor, s_device);
    int count = -1;
    if (stride != NULL && dtype != NULL && device != NULL) {
        PyObject *known = PyDict_GetItemWithError(devices, device);
        if (known == NULL && !PyErr_Occurred()) {
            PyObject *number = PyLong_FromSsize_t(PyDict_Size(devices));
            if (number != NULL && PyDict_SetItem(devices, device, number) == 0)
                known = PyDict_GetItemWithError(devices, device);
            Py_XDECREF(number);
        }
        Py_ssize_t dims = PyTuple_Size(shape), strides = PyTuple_Size(stride);
        if (known != NULL && dims >= 0 && strides >= 0) {
            if (room < 3 + dims + strides) {
                count = 0;
            } else {
                words[0] = (uint64_t)dims | (uint64_t)strides << 16 | (uint64_t)PyLong_AsLong(known) << 32;
                words[1] = (uint64_t)(uintptr_t)dtype; /* dtypes live as long as torch */
                count = 2;
                for (Py_ssize_t i = 0; i < dims; i++) words[count++] = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(shape, i));
                for (Py_ssize_t i = 0; i < strides; i++) words[count++] = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(stride, i));
                if (PyErr_Occurred()) count = -1;
            }
        }
    }
    Py_DECREF(shape);
    Py_XDECREF(stride);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    *address = 0;
    if (count > 0 && pointers) {
        PyObject *found = torch_c == NULL ? NULL : PyObject_CallMethodObjArgs(torch_c, s_data_address, tensor, NULL);
        if (found != NULL) *address = PyLong_AsLongLong(found);
        Py_XDECREF(found);
        PyErr_Clear();
    }
    return count;
}

/* --- Signatures ------------------------------------------------------------------------------------------------ */

static uint64_t hash_words(const uint64_t *words, uint32_t length) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ length;
    for (uint32_t i = 0; i < length; i++) {
        h ^= words[i];
        h *= 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    return h;
}

static Signature *find_signature(const uint64_t *words, uint32_t length, uint64_t hash) {
    if (table_size == 0) return NULL;
    for (uint32_t at = (uint32_t)hash & (table_size - 1);; at = (at + 1) & (table_size - 1)) {
        Signature *s = &table[at];
        if (s->words == NULL) return NULL;
        if (s->hash == hash && s->length == length && memcmp(s->words, words, 8 * (size_t)length) == 0) return s;
    }
}

static int grow_table(void) {
    uint32_t size = table_size ? 2 * table_size : 4096;
    Signature *grown = PyMem_Calloc(size, sizeof(Signature));
    if (grown == NULL) return -1;
    for (uint32_t i = 0; i < table_size; i++) {
        if (table[i].words == NULL) continue;
        uint32_t at = (uint32_t)table[i].hash & (size - 1);
        while (grown[at].words != NULL) at = (at + 1) & (size - 1);
        grown[at] = table[i];
    }
    PyMem_Free(table);
    table = grown;
    table_size = size;
    return 0;
}

static Signature *new_signature(const uint64_t *words, uint32_t length, uint64_t hash, uint32_t number) {
    if (2 * (table_used + 1) > table_size && grow_table() < 0) return NULL;
    uint64_t *kept = PyMem_Malloc(8 * (size_t)(length ? length : 1));
    if (kept == NULL) return NULL;
    memcpy(kept, words, 8 * (size_t)length);
    uint32_t at = (uint32_t)hash & (table_size - 1);
    while (table[at].words != NULL) at = (at + 1) & (table_size - 1);
    table[at] = (Signature){hash, length, number, kept};
    if (++table_used > MAX_SIGNATURES) forget_soon = 1;
    return &table[at];
}

/* --- Layouts --------------------------------------------------------------------------------------------------- */

static Layout **chain_of(PyObject *type) { return &by_type[((uintptr_t)type >> 4) % 1024]; }

static Layout *find_layout(Layout **chain, PyObject *owner, PyObject **names, PyObject **values, int count) {
    int length = 0;
    for (Layout **at = chain; *at != NULL; at = &(*at)->next, length++) {
        Layout *layout = *at;
        if (layout->count != count || layout->owner != owner) continue;
        int i = 0;
        if (names != NULL)
            while (i < count && layout->names[i] == names[i] && layout->types[i] == (PyObject *)Py_TYPE(values[i])) i++;
        else
            while (i < count && layout->types[i] == (PyObject *)Py_TYPE(values[i])) i++;
        if (i == count) {
            if (length > 2) { /* to the front */
                *at = layout->next;
                layout->next = *chain;
                *chain = layout;
            }
            return layout;
        }
    }
    return NULL;
}

static void free_layout(Layout *layout) {
    for (int i = 0; i < layout->count; i++) {
        if (layout->names != NULL) Py_DECREF(layout->names[i]);
        Py_DECREF(layout->types[i]);
    }
    PyMem_Free(layout->names);
    PyMem_Free(layout->types);
    PyMem_Free(layout->steps);
    Py_XDECREF(layout->owner);
    PyMem_Free(layout);
}

static void free_chain(Layout **chain) {
    while (*chain != NULL) {
        Layout *layout = *chain;
        *chain = layout->next;
        free_layout(layout);
    }
}

/* Asks Python for the layout of these values. `title` is the type, or the text that names a side of a site. */
static Layout *new_layout(Layout **chain, PyObject *owner, PyObject *title, PyObject **names, PyObject *names_tuple,
                          PyObject **values, int count, int depth) {
    slow_calls++;
    PyObject *all = PyList_New(count), *tuple = names_tuple, *answer = NULL, *steps = NULL;
    Layout *layout = NULL;
    if (all == NULL) return NULL;
    for (int i = 0; i < count; i++) { Py_INCREF(values[i]); PyList_SetItem(all, i, values[i]); }
    if (tuple == NULL) {
        tuple = PyTuple_New(count);
        for (int i = 0; tuple != NULL && i < count; i++) { Py_INCREF(names[i]); PyTuple_SetItem(tuple, i, names[i]); }
    } else {
        Py_INCREF(tuple);
    }
    PyObject *level = PyLong_FromLong(depth);
    if (tuple != NULL && level != NULL) answer = PyObject_CallFunctionObjArgs(on_layout, title, tuple, all, level, NULL);
    Py_XDECREF(level);
    Py_DECREF(all);
    if (answer == NULL) { Py_XDECREF(tuple); return NULL; }
    unsigned long number;
    if (!PyArg_ParseTuple(answer, "kO!", &number, &PyTuple_Type, &steps)) goto done;
    layout = PyMem_Calloc(1, sizeof(Layout));
    if (layout == NULL) { PyErr_NoMemory(); goto done; }
    layout->count = 0;
    layout->number = (uint32_t)number;
    layout->step_count = (int)PyTuple_Size(steps);
    layout->types = PyMem_Calloc((size_t)count + 1, sizeof(PyObject *));
    layout->names = names == NULL ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(PyObject *));
    layout->steps = PyMem_Calloc((size_t)layout->step_count + 1, sizeof(*layout->steps));
    if (layout->types == NULL || layout->steps == NULL || (names != NULL && layout->names == NULL)) {
        PyErr_NoMemory();
        free_layout(layout);
        layout = NULL;
        goto done;
    }
    Py_XINCREF(owner);
    layout->owner = owner;
    for (int i = 0; i < layout->step_count; i++) {
        int index, kind, keep;
        if (!PyArg_ParseTuple(PyTuple_GetItem(steps, i), "iip", &index, &kind, &keep) || index >= count) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a step beyond the fields");
            free_layout(layout);
            layout = NULL;
            goto done;
        }
        layout->steps[i].index = (uint16_t)index;
        layout->steps[i].kind = (uint8_t)kind;
        layout->steps[i].keep = (uint8_t)keep;
        layout->deep |= kind == NESTED || kind == LIST;
    }
    for (int i = 0; i < count; i++) {
        layout->types[i] = (PyObject *)Py_TYPE(values[i]);
        Py_INCREF(layout->types[i]);
        if (names != NULL) { layout->names[i] = names[i]; Py_INCREF(names[i]); }
    }
    layout->count = count;
    int length = 0;
    for (Layout *at = *chain; at != NULL; at = at->next)
        if (++length >= MAX_CHAIN) forget_soon = 1;
    layout->next = *chain;
    *chain = layout;
done:
    Py_XDECREF(tuple); /* kept the names alive */
    Py_DECREF(answer);
    return layout;
}

/* --- Describing ------------------------------------------------------------------------------------------------ */

static int64_t describe(Layout **chain, PyObject *owner, PyObject *title, PyObject **names, PyObject *names_tuple,
                        PyObject **values, int count, Ints *ints, int depth);

static int64_t describe_as(const Layout *layout, PyObject *title, PyObject **names, PyObject *names_tuple,
                           PyObject **values, int count, Ints *ints, int depth);

static int add_int(Ints *ints, int64_t value) {
    if (ints->count >= MAX_INTS) { PyErr_SetString(PyExc_OverflowError, "too many integers in a record"); return -1; }
    ints->values[ints->count++] = value;
    return 0;
}

static int add_long(Ints *ints, PyObject *value) {
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && PyErr_Occurred()) return -1;
    return add_int(ints, overflow ? INT64_MAX : number);
}

/* A call of Python that gives a number and extends a list of integers, which are taken over. */
static int64_t ask_python(PyObject *call, PyObject *first, PyObject *second, int depth, Ints *ints) {
    PyObject *list = PyList_New(0), *level = PyLong_FromLong(depth), *answer = NULL;
    int64_t number = -1;
    if (list != NULL && level != NULL)
        answer = second == NULL ? PyObject_CallFunctionObjArgs(call, first, list, level, NULL)
                                : PyObject_CallFunctionObjArgs(call, first, list, second, level, NULL);
    if (answer != NULL) number = PyLong_AsLongLong(answer);
    if (number >= 0 && !PyErr_Occurred())
        for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
            if (add_long(ints, PyList_GetItem(list, i)) < 0) { number = -1; break; }
    Py_XDECREF(answer);
    Py_XDECREF(list);
    Py_XDECREF(level);
    return number;
}

static int64_t describe_object(PyObject *value, Ints *ints, int depth) {
    PyObject *names[MAX_FIELDS], *values[MAX_FIELDS];
    PyObject *type = (PyObject *)Py_TYPE(value);
    int count = 0;
    int64_t number;
    if (depth > MAX_DEPTH) return 0;
    if (type == (PyObject *)&PyTuple_Type) {
        Py_ssize_t size = PyTuple_Size(value);
        count = size > MAX_SEQUENCE ? MAX_SEQUENCE : (int)size;
        for (int i = 0; i < count; i++) {
            names[i] = PyTuple_GetItem(ordinals, i);
            values[i] = PyTuple_GetItem(value, i);
        }
        return describe(chain_of(type), type, type, names, NULL, values, count, ints, depth);
    }
    PyObject *fields = PyTuple_Check(value) ? NULL : PyObject_GenericGetDict(value, NULL);
    if (fields == NULL) { /* slots, a msgspec struct, a named tuple */
        PyErr_Clear();
        return ask_python(on_object, value, NULL, depth, ints);
    }
    Py_ssize_t position = 0;
    PyObject *name, *field;
    while (PyDict_Next(fields, &position, &name, &field)) {
        if (count == MAX_FIELDS) {
            Py_DECREF(fields);
            return ask_python(on_object, value, NULL, depth, ints);
        }
        names[count] = name;
        values[count++] = field;
    }
    number = describe(chain_of(type), type, type, names, NULL, values, count, ints, depth);
    Py_DECREF(fields);
    return number;
}

static int64_t describe_list(PyObject *list, Ints *ints, int keep, int depth) {
    Py_ssize_t count = PyList_Size(list);
    PyObject *first = count ? PyList_GetItem(list, 0) : NULL;
    PyTypeObject *kind = first == NULL ? NULL : Py_TYPE(first);
    if (count <= MAX_LIST && (keep ? !count || kind == &PyLong_Type || kind == &PyList_Type : kind == &PyList_Type)) {
        Py_ssize_t i = 0;
        while (i < count && Py_TYPE(PyList_GetItem(list, i)) == kind) i++;
        if (i == count) {
            if (add_int(ints, count) < 0) return -1;
            for (i = 0; i < count; i++) {
                PyObject *item = PyList_GetItem(list, i);
                if ((kind == &PyLong_Type ? add_long(ints, item) : add_int(ints, PyList_Size(item))) < 0) return -1;
            }
            return 0;
        }
    }
    if (first == NULL || kind == &PyLong_Type || kind == &PyUnicode_Type || kind == &PyFloat_Type || kind == &PyList_Type)
        return add_int(ints, -1 - (int64_t)count) < 0 ? -1 : 0;
    return ask_python(on_list, list, keep ? Py_True : Py_False, depth, ints);
}

/* `values` are borrowed from an object that another thread may change as soon as Python runs. */
static int64_t describe(Layout **chain, PyObject *owner, PyObject *title, PyObject **names, PyObject *names_tuple,
                        PyObject **values, int count, Ints *ints, int depth) {
    Layout *layout = find_layout(chain, owner, names, values, count);
    if (layout != NULL && !layout->deep)
        return describe_as(layout, title, names, names_tuple, values, count, ints, depth);
    int64_t number = -1;
    for (int i = 0; i < count; i++) Py_INCREF(values[i]);
    if (layout == NULL) layout = new_layout(chain, owner, title, names, names_tuple, values, count, depth);
    if (layout != NULL) number = describe_as(layout, title, names, names_tuple, values, count, ints, depth);
    for (int i = 0; i < count; i++) Py_DECREF(values[i]);
    return number;
}

static int64_t describe_as(const Layout *layout, PyObject *title, PyObject **names, PyObject *names_tuple,
                           PyObject **values, int count, Ints *ints, int depth) {
    uint64_t words[MAX_WORDS];
    int used = 1;
    words[0] = layout->number;
    for (int i = 0; i < layout->step_count; i++) {
        PyObject *value = values[layout->steps[i].index];
        int kind = layout->steps[i].kind;
        int64_t number;
        if (used + 2 > MAX_WORDS) { PyErr_SetString(PyExc_OverflowError, "too many fields in a record"); return -1; }
        switch (kind) {
        case TENSOR: {
            int64_t address = 0;
            int added = tensor_words(value, words + used, MAX_WORDS - used, &address);
            if (added == 0) PyErr_SetString(PyExc_OverflowError, "too many tensors in a record");
            if (added <= 0) return -1;
            used += added;
            if (pointers && add_int(ints, address) < 0) return -1;
            break;
        }
        case INT:
            if (add_long(ints, value) < 0) return -1;
            break;
        case FLAG:
            words[used++] = value == Py_True;
            break;
        case ENUM:
            words[used++] = (uint64_t)(uintptr_t)value;
            break;
        case LIST:
        case NESTED:
            number = kind == LIST ? describe_list(value, ints, layout->steps[i].keep, depth)
                                  : describe_object(value, ints, depth + 1);
            if (number < 0) return -1;
            words[used++] = (uint64_t)number;
            break;
        }
    }
    uint64_t hash = hash_words(words, (uint32_t)used);
    Signature *signature = find_signature(words, (uint32_t)used, hash);
    if (signature != NULL) return signature->number;

    /* Python gives the number; it describes the same values once more. */
    slow_calls++;
    PyObject *all = PyList_New(count), *tuple = names_tuple, *answer = NULL;
    int64_t number = -1;
    if (all == NULL) return -1;
    for (int i = 0; i < count; i++) { Py_INCREF(values[i]); PyList_SetItem(all, i, values[i]); }
    if (tuple == NULL) {
        tuple = PyTuple_New(count);
        for (int i = 0; tuple != NULL && i < count; i++) { Py_INCREF(names[i]); PyTuple_SetItem(tuple, i, names[i]); }
    } else {
        Py_INCREF(tuple);
    }
    PyObject *level = PyLong_FromLong(depth), *scratch = PyList_New(0);
    if (tuple != NULL && level != NULL && scratch != NULL)
        answer = PyObject_CallFunctionObjArgs(on_signature, title, tuple, all, scratch, level, NULL);
    if (answer != NULL) number = PyLong_AsLongLong(answer);
    Py_XDECREF(answer);
    Py_XDECREF(scratch);
    Py_XDECREF(level);
    Py_XDECREF(tuple);
    Py_DECREF(all);
    if (number < 0) return -1;
    for (int i = 0; i < layout->step_count; i++)
        if (layout->steps[i].kind == ENUM) Py_INCREF(values[layout->steps[i].index]); /* its address is in the words */
    if (new_signature(words, (uint32_t)used, hash, (uint32_t)number) == NULL) { PyErr_NoMemory(); return -1; }
    return number;
}

/* --- Selectors ------------------------------------------------------------------------------------------------- */

static PyObject *read_name(PyObject *value, PyObject *name) {
    if (!PyType_Check(value)) {
        PyObject *fields = PyObject_GenericGetDict(value, NULL);
        if (fields != NULL) {
            PyObject *found = PyDict_GetItemWithError(fields, name);
            Py_XINCREF(found);
            Py_DECREF(fields);
            if (found != NULL || PyErr_Occurred()) return found;
        } else {
            PyErr_Clear();
        }
    }
    return PyObject_CallFunctionObjArgs(on_read, value, name, NULL);
}

/* Follows `parts` from `at` on; takes `value` over and returns a new reference. */
static PyObject *walk(PyObject *value, PyObject *parts, Py_ssize_t at) {
    Py_ssize_t count = PyTuple_Size(parts);
    for (; value != NULL && at < count; at++) {
        PyObject *part = PyTuple_GetItem(parts, at), *next = NULL;
        if (value == Py_None || value == unread) return value;
        int is_list = Py_TYPE(value) == &PyList_Type, is_tuple = Py_TYPE(value) == &PyTuple_Type;
        if (part == s_every) {
            Py_ssize_t size = is_list ? PyList_Size(value) : is_tuple ? PyTuple_Size(value) : -1;
            if (size >= 0 && size <= 1024) {
                next = PyList_New(size);
                for (Py_ssize_t i = 0; next != NULL && i < size; i++) {
                    PyObject *item = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
                    Py_XINCREF(item);
                    item = walk(item, parts, at + 1);
                    if (item == NULL) { Py_DECREF(next); next = NULL; break; }
                    PyList_SetItem(next, i, item);
                }
                Py_DECREF(value);
                return next;
            }
            next = unread;
            Py_INCREF(next);
        } else if (PyLong_Check(part)) {
            Py_ssize_t index = PyLong_AsSsize_t(part);
            if (is_list && index < PyList_Size(value)) next = PyList_GetItem(value, index);
            else if (is_tuple && index < PyTuple_Size(value)) next = PyTuple_GetItem(value, index);
            else next = unread;
            Py_XINCREF(next);
        } else {
            next = read_name(value, part);
        }
        Py_DECREF(value);
        value = next;
    }
    return value;
}

static PyObject *select_value(const Selector *selector, PyObject *args, PyObject *kwargs, PyObject *result) {
    PyObject *value = unread;
    if (selector->call != NULL) return PyObject_CallFunctionObjArgs(selector->call, args, kwargs, result, NULL);
    if (selector->root == 2) value = result;
    else if (selector->position < PyTuple_Size(args)) value = PyTuple_GetItem(args, selector->position);
    else if (selector->name != Py_None) {
        PyObject *found = PyDict_GetItemWithError(kwargs, selector->name);
        if (found == NULL && PyErr_Occurred()) return NULL;
        if (found != NULL) value = found;
    }
    Py_INCREF(value);
    return walk(value, selector->parts, 0);
}

static Selector the_result = {2, 0, NULL, NULL, NULL};
static Side raised_side = {1, &the_result, NULL, NULL, NULL};

/* --- Records --------------------------------------------------------------------------------------------------- */

static int is_defined(uint32_t number) {
    uint32_t at = number & ((1u << 14) - 1);
    return defined[at].number == number && defined[at].generation == generation;
}

static void put(int where, uint64_t value) {
    if (head != NULL) memcpy(head + where, &value, 8);
}

static int write_record(int kind, const Site *site, uint32_t signature, const Ints *ints, int phase, int thread,
                        uint64_t time) {
    uint32_t length = RECORD_SIZE + 8u * (uint32_t)ints->count, crc;
    if (stream_at + length > stream_end || (signature && !is_defined(signature))) {
        slow_calls++;
        PyObject *answer = PyObject_CallFunction(on_room, "kk", (unsigned long)length, (unsigned long)signature);
        if (answer == NULL) return -1;
        Py_DECREF(answer);
        if (stream_at + length > stream_end) { PyErr_SetString(PyExc_RuntimeError, "no room in a new segment"); return -1; }
        defined[signature & ((1u << 14) - 1)].number = signature;
        defined[signature & ((1u << 14) - 1)].generation = generation;
    }
    uint8_t *at = stream + stream_at;
    uint16_t site16 = (uint16_t)site->number, thread16 = (uint16_t)thread, count16 = (uint16_t)ints->count;
    memcpy(at + 4, &length, 4);
    memcpy(at + 8, &time, 8);
    memcpy(at + 16, &step_now, 4);
    memcpy(at + 20, &signature, 4);
    memcpy(at + 24, &site16, 2);
    at[26] = (uint8_t)kind;
    at[27] = (uint8_t)phase;
    memcpy(at + 28, &thread16, 2);
    memcpy(at + 30, &count16, 2);
    memcpy(at + 32, ints->values, 8 * (size_t)ints->count);
    crc = crc32_of(at + 4, length - 4);
    if (crc == 0) crc = 1;
    __atomic_store_n((uint32_t *)at, crc, __ATOMIC_RELEASE);
    stream_at += length;
    put(head_at.records, ++records);
    put(head_at.step, step_now);
    return 0;
}

static int record(int kind, Site *site, Side *side, int thread, PyObject *args, PyObject *kwargs, PyObject *result) {
    uint64_t time = now_ns();
    Thread *state = &threads[thread];
    PyObject *values[MAX_VALUES];
    Ints ints;
    int count = 0, failed = 0;
    int64_t number = 0;
    uint64_t slow_before = slow_calls;
    ints.count = 0;
    if (state->busy) { put(head_at.not_taken, ++not_taken); return 0; }
    if (forget_soon && inside == 0) {
        for (int i = 0; i < 1024; i++) free_chain(&by_type[i]);
        for (int i = 0; i < 2 * site_count; i++) free_chain(&sites[i / 2]->side[i % 2].layouts);
        free_chain(&raised_side.layouts);
        for (uint32_t i = 0; i < table_size; i++) { PyMem_Free(table[i].words); table[i].words = NULL; }
        table_used = 0;
        forget_soon = 0;
        PyObject *done = PyObject_CallFunctionObjArgs(on_forget, NULL);
        if (done == NULL) return -1;
        Py_DECREF(done);
    }
    state->busy = 1;
    inside++;
    for (; count < side->count && !failed; count += !failed) {
        values[count] = select_value(&side->selectors[count], args, kwargs, result);
        failed = values[count] == NULL;
    }
    if (!failed && count > 0) {
        number = describe(&side->layouts, NULL, side->owner, NULL, side->names, values, count, &ints, 0);
        failed = number < 0;
    }
    if (!failed) {
        int phase = state->captures || state->graphs ? CAPTURE : state->replays ? REPLAY : stepped ? EAGER : WARM_UP;
        failed = write_record(kind, site, (uint32_t)number, &ints, phase, thread, time) < 0;
    }
    for (int i = 0; i < count; i++) Py_DECREF(values[i]);
    state->busy = 0;
    inside--;
    if (failed) return -1;
    uint64_t cost = now_ns() - time;
    spent_ns += cost;
    if (slow_calls != slow_before) {
        put(head_at.cold_ns, cold_ns += cost);
        put(head_at.cold, ++cold);
    } else {
        put(head_at.warm_ns, warm_ns += cost);
        put(head_at.warm, ++warm);
    }
    return 0;
}

/* --- Called by the wrappers ------------------------------------------------------------------------------------ */

static int this_thread(void) {
    unsigned long ident = PyThread_get_thread_ident();
    for (int i = 0; i < thread_count; i++)
        if (threads[i].ident == ident) return i;
    if (thread_count == MAX_THREADS) return MAX_THREADS - 1; /* shares a number with others */
    threads[thread_count].ident = ident;
    return thread_count++;
}

static int wanted(const Site *site, const Thread *thread) {
    if (thread->graphs || (level != FULL && (level == OFF || !(site->flags & F_LIGHT)))) return 0;
    return !thread->captures || site->flags & F_CAPTURE;
}

static void leave(const Site *site, Thread *thread, int raised) {
    if (site->flags & F_CAPTURE) thread->captures--;
    if (site->flags & F_REPLAY) thread->replays--;
    if (site->flags & F_GRAPH_END || (raised && site->flags & F_GRAPH_BEGIN)) thread->graphs--;
}

/* Tells Python of a failure. What is no Exception (an interrupt) goes on as it would without the probe. */
static PyObject *fail(Site *site) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *done = PyObject_CallFunctionObjArgs(on_failed, site->site, value == NULL ? Py_None : value, NULL);
    if (done == NULL) PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_RETURN_NONE;
}

static Site *site_of(PyObject *number) {
    long at = PyLong_AsLong(number);
    if (at < 0 || at >= site_count) { PyErr_SetString(PyExc_IndexError, "no such site"); return NULL; }
    return sites[at];
}

static PyObject *fast_before(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 3) { PyErr_SetString(PyExc_TypeError, "before(site, args, kwargs)"); return NULL; }
    Site *site = site_of(given[0]);
    if (site == NULL) return NULL;
    if (!site->on) Py_RETURN_NONE;
    int number = this_thread();
    Thread *thread = &threads[number];
    if (site->flags & F_TURN) {
        PyObject *done = PyObject_CallFunctionObjArgs(on_turn, site->site, given[1], NULL);
        if (done == NULL) return fail(site);
        Py_DECREF(done);
    }
    if (site->flags & F_CAPTURE) thread->captures++;
    if (site->flags & F_REPLAY) thread->replays++;
    if (site->flags & F_GRAPH_BEGIN) thread->graphs++;
    if (!wanted(site, thread)) {
        if (!(site->flags & F_AFTER)) Py_RETURN_NONE; /* nothing is left to do when it returns */
    } else if (!(site->flags & F_QUIET) &&
        record(ENTER, site, &site->side[0], number, given[1], given[2], Py_None) < 0) {
        leave(site, thread, 0);
        return fail(site);
    }
    return PyLong_FromLong(number);
}

static PyObject *fast_after(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 5) { PyErr_SetString(PyExc_TypeError, "after(site, thread, args, kwargs, result)"); return NULL; }
    Site *site = site_of(given[0]);
    long number = PyLong_AsLong(given[1]);
    if (site == NULL || number < 0 || number >= MAX_THREADS) return NULL;
    Thread *thread = &threads[number];
    int failed = 0;
    if (wanted(site, thread) && !(site->flags & F_QUIET && given[4] == Py_None))
        failed = record(EXIT, site, &site->side[1], (int)number, given[2], given[3], given[4]) < 0;
    leave(site, thread, 0);
    if (failed) return fail(site);
    if (site->flags & F_RESULT) {
        PyObject *done = PyObject_CallFunctionObjArgs(on_result, site->site, given[2], given[4], NULL);
        if (done == NULL) return fail(site);
        Py_DECREF(done);
    }
    Py_RETURN_NONE;
}

static PyObject *fast_raised(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    if (count != 3) { PyErr_SetString(PyExc_TypeError, "raised(site, thread, error)"); return NULL; }
    Site *site = site_of(given[0]);
    long number = PyLong_AsLong(given[1]);
    if (site == NULL || number < 0 || number >= MAX_THREADS) return NULL;
    int failed = 0;
    if (wanted(site, &threads[number])) {
        PyObject *none = PyTuple_New(0);
        failed = none == NULL || record(RAISE, site, &raised_side, (int)number, none, Py_None, given[2]) < 0;
        Py_XDECREF(none);
    }
    leave(site, &threads[number], 1);
    if (failed) return fail(site);
    Py_RETURN_NONE;
}

/* --- Called by fast.py ----------------------------------------------------------------------------------------- */

static PyObject *fast_setup(PyObject *self, PyObject *args) {
    PyObject *capsule, *names;
    PyObject **held[] = {&on_layout, &on_signature, &on_object, &on_list, &on_room, &on_turn, &on_result, &on_failed,
                         &on_read, &on_forget, &unread, &ordinals, &s_every};
    PyObject *given[13];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOO!OOOpO(iiiiiii)", &given[0], &given[1], &given[2], &given[3], &given[4],
                          &given[5], &given[6], &given[7], &given[8], &given[9], &given[10], &PyTuple_Type, &given[11],
                          &given[12], &capsule, &torch_c, &pointers, &names, &head_at.records, &head_at.step,
                          &head_at.not_taken, &head_at.warm_ns, &head_at.warm, &head_at.cold_ns,
                          &head_at.cold))
        return NULL;
    exchange = NULL;
    if (capsule != Py_None) {
        DLExchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (found == NULL) return NULL;
        if (found->version.major == 1 && found->tensor_from_object != NULL) exchange = found;
    }
    for (int i = 0; i < 13; i++) {
        Py_INCREF(given[i]);
        Py_XDECREF(*held[i]);
        *held[i] = given[i];
    }
    if (torch_c == Py_None) torch_c = NULL;
    Py_XINCREF(torch_c);
    if (devices == NULL) devices = PyDict_New();
    the_result.name = Py_None;
    the_result.parts = PyTuple_New(0);
    raised_side.owner = PyUnicode_FromString("raised");
    raised_side.names = names;
    Py_INCREF(names);
    if (devices == NULL || the_result.parts == NULL || raised_side.owner == NULL) return NULL;
    return PyBool_FromLong(exchange != NULL);
}

static int fill_side(Side *side, PyObject *owner, PyObject *names, PyObject *selectors) {
    Py_ssize_t count = PyTuple_Size(selectors);
    if (count < 0) return -1;
    if (count > MAX_VALUES || PyTuple_Size(names) != count) { PyErr_SetString(PyExc_ValueError, "too many fields"); return -1; }
    side->selectors = PyMem_Calloc((size_t)count + 1, sizeof(Selector));
    if (side->selectors == NULL) { PyErr_NoMemory(); return -1; }
    for (Py_ssize_t i = 0; i < count; i++) {
        Selector *s = &side->selectors[i];
        if (!PyArg_ParseTuple(PyTuple_GetItem(selectors, i), "inOO!O", &s->root, &s->position, &s->name, &PyTuple_Type,
                              &s->parts, &s->call))
            return -1;
        Py_INCREF(s->name);
        Py_INCREF(s->parts);
        if (s->call == Py_None) s->call = NULL;
        Py_XINCREF(s->call);
    }
    Py_INCREF(owner);
    Py_INCREF(names);
    side->owner = owner;
    side->names = names;
    side->count = (int)count;
    return 0;
}

static PyObject *fast_site(PyObject *self, PyObject *args) {
    PyObject *site, *owner[2], *names[2], *selectors[2];
    int number, flags;
    if (!PyArg_ParseTuple(args, "Oii(OO!O!)(OO!O!)", &site, &number, &flags, &owner[0], &PyTuple_Type, &names[0],
                          &PyTuple_Type, &selectors[0], &owner[1], &PyTuple_Type, &names[1], &PyTuple_Type, &selectors[1]))
        return NULL;
    Site **grown = PyMem_Realloc(sites, sizeof(Site *) * (size_t)(site_count + 1));
    Site *added = PyMem_Calloc(1, sizeof(Site)); /* stays where it is: calls hold on to it */
    if (grown == NULL || added == NULL) return PyErr_NoMemory();
    sites = grown;
    sites[site_count] = added;
    added->number = number;
    added->flags = flags;
    added->on = 1;
    added->site = site;
    Py_INCREF(site);
    for (int i = 0; i < 2; i++)
        if (fill_side(&added->side[i], owner[i], names[i], selectors[i]) < 0) return NULL;
    return PyLong_FromLong(site_count++);
}

static PyObject *fast_switch_off(PyObject *self, PyObject *number) {
    Site *site = site_of(number);
    if (site == NULL) return NULL;
    site->on = 0;
    Py_RETURN_NONE;
}

static PyObject *fast_stream(PyObject *self, PyObject *args) {
    unsigned long long address, at, end, head_address;
    if (!PyArg_ParseTuple(args, "KKKK", &address, &at, &end, &head_address)) return NULL;
    stream = (uint8_t *)(uintptr_t)address;
    stream_at = at;
    stream_end = end;
    head = (uint8_t *)(uintptr_t)head_address;
    generation++;
    Py_RETURN_NONE;
}

/* Writes what is packed by Python, all but its first word, and completes it. False if there is no room. */
static PyObject *fast_append(PyObject *self, PyObject *body) {
    char *data;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(body, &data, &length) < 0) return NULL;
    if (stream_at + (uint64_t)length + 4 > stream_end) Py_RETURN_FALSE;
    uint8_t *at = stream + stream_at;
    memcpy(at + 4, data, (size_t)length);
    uint32_t crc = crc32_of(at + 4, (size_t)length);
    __atomic_store_n((uint32_t *)at, crc ? crc : 1, __ATOMIC_RELEASE);
    stream_at += (uint64_t)length + 4;
    Py_RETURN_TRUE;
}

static PyObject *fast_has_room(PyObject *self, PyObject *length) {
    unsigned long long wanted_bytes = PyLong_AsUnsignedLongLong(length);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(stream_at + wanted_bytes <= stream_end);
}

static PyObject *fast_set_step(PyObject *self, PyObject *args) {
    unsigned int step;
    if (!PyArg_ParseTuple(args, "Iip", &step, &level, &stepped)) return NULL;
    step_now = step;
    Py_RETURN_NONE;
}

static PyObject *fast_spent(PyObject *self, PyObject *unused) {
    return Py_BuildValue("KK", (unsigned long long)spent_ns, (unsigned long long)cold);
}

static PyObject *fast_counters(PyObject *self, PyObject *unused) {
    return Py_BuildValue("KKKKKK", (unsigned long long)records, (unsigned long long)not_taken,
                         (unsigned long long)warm_ns, (unsigned long long)warm, (unsigned long long)cold_ns,
                         (unsigned long long)cold);
}

/* The child of a fork: nothing is mapped yet, and nothing was recorded. */
static PyObject *fast_abandon(PyObject *self, PyObject *unused) {
    stream = head = NULL;
    stream_at = stream_end = records = not_taken = warm_ns = warm = cold_ns = cold = 0;
    generation++;
    for (int i = 0; i < thread_count; i++) threads[i].busy = 0;
    inside = 0;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"before", (PyCFunction)(void (*)(void))fast_before, METH_FASTCALL, "A wrapped function is about to be called."},
    {"after", (PyCFunction)(void (*)(void))fast_after, METH_FASTCALL, "It returned."},
    {"raised", (PyCFunction)(void (*)(void))fast_raised, METH_FASTCALL, "It raised."},
    {"setup", fast_setup, METH_VARARGS, "What is left to Python. Returns whether tensors are read through DLPack."},
    {"site", fast_site, METH_VARARGS, "Add a site; returns what the others call it."},
    {"switch_off", fast_switch_off, METH_O, "Record a site no more."},
    {"stream", fast_stream, METH_VARARGS, "Write into other memory."},
    {"append", fast_append, METH_O, "Write a packed record."},
    {"has_room", fast_has_room, METH_O, "Whether a record of so many bytes fits."},
    {"set_step", fast_set_step, METH_VARARGS, "The step, how much of it is recorded, whether there was one."},
    {"spent", fast_spent, METH_NOARGS, "What all records took, in ns, and how many had something new."},
    {"counters", fast_counters, METH_NOARGS, "Records, records not taken, and the cost of warm and of cold ones."},
    {"abandon", fast_abandon, METH_NOARGS, "Let go of the memory after a fork."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_fast", "The recorder's hot path.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) {
    crc_prepare();
    s_shape = PyUnicode_InternFromString("shape");
    s_stride = PyUnicode_InternFromString("stride");
    s_dtype = PyUnicode_InternFromString("dtype");
    s_device = PyUnicode_InternFromString("device");
    s_data_address = PyUnicode_InternFromString("_data_address");
    return PyModule_Create(&module);
}
