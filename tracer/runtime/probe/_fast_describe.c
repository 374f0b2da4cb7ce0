/* Values to signatures: what describe.py does, for what was seen before or differs only in sizes. */

/* The part of DLPack's exchange table that is used (dlpack.h). */
typedef struct { uint32_t major, minor; } DLVersion;
typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape; int64_t *strides; uint64_t byte_offset;
} DLTensor;
typedef struct {
    DLVersion version; void *prev; void *allocator; void *from_object; void *to_object;
    int (*tensor_from_object)(void *object, DLTensor *out); void *current_stream;
} DLExchange;
static DLExchange *exchange;

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

/* --- Tensors: words are [dims | strides << 16, dtype, device, sizes ..., strides ...] ---------------------------- */

static int slow_tensor_words(PyObject *tensor, uint64_t *words, int room, int64_t *address);

/* How many words, 0 if there is no room, -1 with an error set. */
static int tensor_words(PyObject *tensor, uint64_t *words, int room, int64_t *address) {
    if (exchange != NULL) {
        DLTensor t;
        if (exchange->tensor_from_object(tensor, &t) == 0) {
            if (room < 3 + 2 * t.ndim) return 0;
            words[0] = (uint64_t)(uint32_t)t.ndim | (uint64_t)(uint32_t)t.ndim << 16;
            words[1] = (uint64_t)t.dtype.code | (uint64_t)t.dtype.bits << 8 | (uint64_t)t.dtype.lanes << 16;
            words[2] = (uint64_t)(uint32_t)t.device.type | (uint64_t)(uint32_t)t.device.id << 32;
            memcpy(words + 3, t.shape, 8 * (size_t)t.ndim);
            memcpy(words + 3 + t.ndim, t.strides, 8 * (size_t)t.ndim);
            *address = (int64_t)((uintptr_t)t.data + t.byte_offset);
            return 3 + 2 * t.ndim;
        }
        PyErr_Clear(); /* sparse, conjugated ...: by its attributes */
    }
    return slow_tensor_words(tensor, words, room, address);
}

static int slow_tensor_words(PyObject *tensor, uint64_t *words, int room, int64_t *address) {
    PyObject *shape = PyObject_GetAttr(tensor, s_shape), *dtype = NULL, *device = NULL;
    PyObject *stride = shape == NULL ? NULL : PyObject_CallMethodObjArgs(tensor, s_stride, NULL);
    int count = -1;
    if (shape != NULL && stride == NULL && PyErr_ExceptionMatches(PyExc_RuntimeError)) { /* NotImplementedError is one */
        PyErr_Clear();
        stride = PyTuple_New(0);
    }
    if (stride != NULL) dtype = PyObject_GetAttr(tensor, s_dtype);
    if (dtype != NULL) device = PyObject_GetAttr(tensor, s_device);
    PyObject *known = device == NULL ? NULL : PyDict_GetItemWithError(devices, device);
    if (device != NULL && known == NULL && !PyErr_Occurred()) {
        PyObject *number = PyLong_FromSsize_t(PyDict_Size(devices));
        if (number != NULL && PyDict_SetItem(devices, device, number) == 0) known = PyDict_GetItemWithError(devices, device);
        Py_XDECREF(number);
    }
    Py_ssize_t dims = known == NULL ? -1 : PyTuple_Size(shape), strides = known == NULL ? -1 : PyTuple_Size(stride);
    if (dims >= 0 && strides >= 0) {
        if (room < 3 + dims + strides) {
            count = 0;
        } else {
            words[0] = (uint64_t)dims | (uint64_t)strides << 16;
            words[1] = (uint64_t)(uintptr_t)dtype; /* dtypes live as long as torch; no pointer is as small as DLPack's */
            words[2] = (uint64_t)PyLong_AsLong(known) | 1ull << 63;
            count = 3;
            for (Py_ssize_t i = 0; i < dims; i++) words[count++] = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(shape, i));
            for (Py_ssize_t i = 0; i < strides; i++) words[count++] = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(stride, i));
            if (PyErr_Occurred()) count = -1;
        }
    }
    Py_XDECREF(shape);
    Py_XDECREF(stride);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    *address = 0;
    if (count > 0 && pointers && torch_c != NULL) {
        PyObject *found = PyObject_CallMethodObjArgs(torch_c, s_data_address, tensor, NULL);
        if (found != NULL) *address = PyLong_AsLongLong(found);
        Py_XDECREF(found);
        PyErr_Clear();
    }
    return count;
}

/* --- Entries ------------------------------------------------------------------------------------------------------ */

static uint64_t hash_words(const uint64_t *words, uint32_t length) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ length;
    for (uint32_t i = 0; i < length; i++) {
        h ^= words[i];
        h *= 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    return h;
}

/* The number of the entry with these words; 0 if there is none. */
static uint32_t find_entry(const uint64_t *words, uint32_t length, uint64_t hash) {
    if (table_size == 0) return 0;
    for (uint32_t at = (uint32_t)hash & (table_size - 1); table[at]; at = (at + 1) & (table_size - 1)) {
        const Entry *e = &entries[table[at] - 1];
        if (e->hash == hash && e->length == length && memcmp(e->words, words, 8 * (size_t)length) == 0)
            return first_number + table[at] - 1;
    }
    return 0;
}

static int make_room_for_entry(void) {
    if (entry_count == entry_room) {
        uint32_t room = entry_room ? 2 * entry_room : 1024;
        Entry *grown = PyMem_Realloc(entries, sizeof(Entry) * room);
        if (grown == NULL) return -1;
        entries = grown;
        entry_room = room;
    }
    if (2 * (entry_count + 1) > table_size) {
        uint32_t size = table_size ? 2 * table_size : 4096, *grown = PyMem_Calloc(size, sizeof(uint32_t));
        if (grown == NULL) return -1;
        for (uint32_t i = 0; i < entry_count; i++) {
            uint32_t at = (uint32_t)entries[i].hash & (size - 1);
            while (grown[at]) at = (at + 1) & (size - 1);
            grown[at] = i + 1;
        }
        PyMem_Free(table);
        table = grown;
        table_size = size;
    }
    return 0;
}

/* `layout` is 0 for a tensor. Returns the new entry's number, 0 with an error set. */
static uint32_t new_entry(const uint64_t *words, uint32_t length, uint64_t hash, uint32_t layout, const uint32_t *slots,
                          const uint8_t *kinds, uint32_t slot_count) {
    size_t bytes = 8 * (size_t)length + 4 * (size_t)slot_count + slot_count;
    if (make_room_for_entry() < 0) { PyErr_NoMemory(); return 0; }
    uint8_t *block = PyMem_Malloc(bytes ? bytes : 1);
    if (block == NULL) { PyErr_NoMemory(); return 0; }
    Entry *e = &entries[entry_count];
    *e = (Entry){hash, (uint64_t *)block, (uint32_t *)(block + 8 * (size_t)length),
                 block + 8 * (size_t)length + 4 * (size_t)slot_count, length, slot_count, 0, layout};
    memcpy(e->words, words, 8 * (size_t)length);
    memcpy(e->slots, slots, 4 * (size_t)slot_count);
    memcpy(e->slot_kinds, kinds, slot_count);
    uint32_t at = (uint32_t)hash & (table_size - 1);
    while (table[at]) at = (at + 1) & (table_size - 1);
    table[at] = ++entry_count;
    new_things++;
    if (entry_count > MAX_ENTRIES) forget_soon = 1;
    return first_number + entry_count - 1;
}

/* The number of the text that Python gives for `object`, remembered under `key`; 0 with an error set. */
static uint32_t text_of(uint64_t key, PyObject *object, PyObject *what) {
    for (int i = 0; i < text_count; i++)
        if (texts[i].key == key) return texts[i].number;
    PyObject *answer = PyObject_CallFunctionObjArgs(on_text, object, what, NULL);
    uint32_t number = answer == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(answer);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) return 0;
    if (text_count < MAX_TEXTS) {
        texts[text_count].key = key;
        texts[text_count++].number = number;
    }
    return number;
}

static uint32_t tensor_number(PyObject *tensor, const uint64_t *words) {
    static const uint8_t kinds[2] = {ENUM, ENUM};
    uint32_t length = 3 + (uint32_t)(words[0] & 0xFFFF) + (uint32_t)(words[0] >> 16 & 0xFFFF), slots[2];
    uint64_t hash = hash_words(words, length);
    uint32_t number = find_entry(words, length, hash);
    if (number) return number;
    slots[0] = text_of(words[1] ^ 0x1111111111111111u, tensor, s_dtype);
    slots[1] = slots[0] ? text_of(words[2] ^ 0x2222222222222222u, tensor, s_device) : 0;
    return slots[1] ? new_entry(words, length, hash, 0, slots, kinds, 2) : 0;
}

/* --- Layouts ------------------------------------------------------------------------------------------------------ */

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
        if (i < count) continue;
        if (length > 2) { /* to the front */
            *at = layout->next;
            layout->next = *chain;
            *chain = layout;
        }
        return layout;
    }
    return NULL;
}

static void free_chain(Layout **chain) {
    while (*chain != NULL) {
        Layout *layout = *chain;
        *chain = layout->next;
        for (int i = 0; i < layout->count; i++) {
            if (layout->names != NULL) Py_DECREF(layout->names[i]);
            Py_DECREF(layout->types[i]);
        }
        PyMem_Free(layout->names);
        PyMem_Free(layout->types);
        PyMem_Free(layout->steps);
        Py_XDECREF(layout->owner);
        PyMem_Free(layout);
        layout_count--;
    }
}

/* Fills `layout` from Python's answer, (number, ((index, kind, keep), ...)). Its names and types follow last. */
static int fill_layout(Layout *layout, PyObject *answer, PyObject **names, PyObject **values, int count) {
    unsigned long number;
    PyObject *steps;
    if (!PyArg_ParseTuple(answer, "kO!", &number, &PyTuple_Type, &steps)) return -1;
    layout->number = (uint32_t)number;
    layout->step_count = (int)PyTuple_Size(steps);
    layout->types = PyMem_Calloc((size_t)count + 1, sizeof(PyObject *));
    layout->names = names == NULL ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(PyObject *));
    layout->steps = PyMem_Calloc((size_t)layout->step_count + 1, sizeof(*layout->steps));
    if (layout->types == NULL || layout->steps == NULL || (names != NULL && layout->names == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < layout->step_count; i++) {
        int index, kind, keep;
        if (!PyArg_ParseTuple(PyTuple_GetItem(steps, i), "iip", &index, &kind, &keep)) return -1;
        if (index < 0 || index >= count) { PyErr_SetString(PyExc_ValueError, "a step beyond the fields"); return -1; }
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
    return 0;
}

/* Asks Python for the layout of these values. `title` is the type, or the text that names a side of a site. */
static Layout *new_layout(Layout **chain, PyObject *owner, PyObject *title, PyObject **names, PyObject *names_tuple,
                          PyObject **values, int count) {
    PyObject *all = PyList_New(count), *tuple = names_tuple, *answer = NULL;
    Layout *layout = NULL;
    new_things++;
    for (int i = 0; all != NULL && i < count; i++) { Py_INCREF(values[i]); PyList_SetItem(all, i, values[i]); }
    if (tuple == NULL) {
        tuple = PyTuple_New(count);
        for (int i = 0; tuple != NULL && i < count; i++) { Py_INCREF(names[i]); PyTuple_SetItem(tuple, i, names[i]); }
    } else {
        Py_INCREF(tuple);
    }
    if (all != NULL && tuple != NULL) answer = PyObject_CallFunctionObjArgs(on_layout, title, tuple, all, NULL);
    if (answer != NULL) {
        layout = PyMem_Calloc(1, sizeof(Layout));
        if (layout == NULL) PyErr_NoMemory();
    }
    if (layout != NULL) {
        Py_XINCREF(owner);
        layout->owner = owner;
        layout_count++;
        if (fill_layout(layout, answer, names, values, count) < 0) {
            layout->count = 0;
            free_chain(&layout);
        } else {
            layout->next = *chain;
            *chain = layout;
            if (layout_count > MAX_LAYOUTS) forget_soon = 1;
        }
    }
    Py_XDECREF(answer);
    Py_XDECREF(tuple); /* kept the names alive */
    Py_XDECREF(all);
    return layout;
}

/* --- Values ------------------------------------------------------------------------------------------------------- */

static int64_t describe(Layout **chain, PyObject *owner, PyObject *title, PyObject **names, PyObject *names_tuple,
                        PyObject **values, int count, Ints *ints, int depth);

/* A call of Python that gives a number and extends a list of integers, which are taken over. */
static int64_t ask_python(PyObject *call, PyObject *value, PyObject *keep, int depth, Ints *ints) {
    PyObject *list = PyList_New(0), *below = PyLong_FromLong(depth), *answer = NULL;
    int64_t number = -1;
    new_things++;
    if (list != NULL && below != NULL)
        answer = keep == NULL ? PyObject_CallFunctionObjArgs(call, value, list, below, NULL)
                              : PyObject_CallFunctionObjArgs(call, value, list, keep, below, NULL);
    if (answer != NULL) number = PyLong_AsLongLong(answer);
    if (number >= 0 && !PyErr_Occurred())
        for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
            if (add_long(ints, PyList_GetItem(list, i)) < 0) { number = -1; break; }
    Py_XDECREF(answer);
    Py_XDECREF(list);
    Py_XDECREF(below);
    return number;
}

static int64_t describe_object(PyObject *value, Ints *ints, int depth) {
    PyObject *names[MAX_FIELDS], *values[MAX_FIELDS], *name, *field;
    PyObject *type = (PyObject *)Py_TYPE(value);
    int count = 0;
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
    while (PyDict_Next(fields, &position, &name, &field)) {
        if (count == MAX_FIELDS) {
            Py_DECREF(fields);
            return ask_python(on_object, value, NULL, depth, ints);
        }
        __builtin_prefetch(field); /* its type is looked at next */
        names[count] = name;
        values[count++] = field;
    }
    int64_t number = describe(chain_of(type), type, type, names, NULL, values, count, ints, depth);
    Py_DECREF(fields);
    return number;
}

/* Whether Python has said before that a list which begins with this type is recorded by its length. */
static int is_counted(PyTypeObject *type) {
    for (int i = 0; i < counted_count; i++)
        if (counted[i] == type) return 1;
    return 0;
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
    if (first == NULL || kind == &PyLong_Type || kind == &PyUnicode_Type || kind == &PyFloat_Type || kind == &PyList_Type ||
        is_counted(kind))
        return add_int(ints, -1 - (int64_t)count) < 0 ? -1 : 0;
    int64_t number = ask_python(on_list, list, keep ? Py_True : Py_False, depth, ints);
    if (number == 0 && depth < MAX_DEPTH && counted_count < MAX_COUNTED) { /* deeper, nothing is looked into */
        Py_INCREF(kind);
        counted[counted_count++] = kind;
    }
    return number;
}

/* Makes the signature of words that were not seen before; the values give the texts. */
static uint32_t new_signature(const Layout *layout, PyObject **values, const uint64_t *words, uint32_t used, uint64_t hash) {
    uint32_t slots[MAX_SLOTS], count = 0;
    uint8_t kinds[MAX_SLOTS];
    const uint64_t *at = words + 1;
    for (int i = 0; i < layout->step_count; i++) {
        PyObject *value = values[layout->steps[i].index];
        int kind = layout->steps[i].kind;
        if (kind == INT) continue;
        if (count == MAX_SLOTS) { PyErr_SetString(PyExc_OverflowError, "too many fields in a record"); return 0; }
        kinds[count] = (uint8_t)kind;
        if (kind == TENSOR) {
            slots[count] = tensor_number(value, at);
            at += 3 + (at[0] & 0xFFFF) + (at[0] >> 16 & 0xFFFF);
        } else if (kind == ENUM) {
            slots[count] = text_of(*at++ ^ 0x3333333333333333u, value, Py_None);
            Py_INCREF(value); /* its address is in the words */
        } else {
            slots[count] = (uint32_t)*at++;
        }
        if (slots[count] == 0 && (kind == TENSOR || kind == ENUM)) return 0;
        count++;
    }
    return new_entry(words, used, hash, layout->number, slots, kinds, count);
}

static int64_t describe_as(const Layout *layout, PyObject **values, Ints *ints, int depth) {
    uint64_t words[MAX_WORDS];
    int used = 1;
    words[0] = (uint64_t)layout->number | 1ull << 40; /* no tensor begins like that */
    for (int i = 0; i < layout->step_count && exchange != NULL; i++)
        if (layout->steps[i].kind == TENSOR) /* where a tensor keeps what it points to: a hint that may be wrong */
            __builtin_prefetch(*(void **)((char *)values[layout->steps[i].index] + 3 * sizeof(void *)));
    for (int i = 0; i < layout->step_count; i++) {
        PyObject *value = values[layout->steps[i].index];
        int64_t number, address = 0;
        int added;
        if (used + 2 > MAX_WORDS) { PyErr_SetString(PyExc_OverflowError, "too many fields in a record"); return -1; }
        switch (layout->steps[i].kind) {
        case TENSOR:
            added = tensor_words(value, words + used, MAX_WORDS - used, &address);
            if (added == 0) PyErr_SetString(PyExc_OverflowError, "too many tensors in a record");
            if (added <= 0) return -1;
            used += added;
            if (pointers && add_int(ints, address) < 0) return -1;
            break;
        case INT:
            if (add_long(ints, value) < 0) return -1;
            break;
        case FLAG:
            words[used++] = value == Py_True;
            break;
        case ENUM:
            words[used++] = (uint64_t)(uintptr_t)value;
            break;
        default:
            number = layout->steps[i].kind == LIST ? describe_list(value, ints, layout->steps[i].keep, depth)
                                                   : describe_object(value, ints, depth + 1);
            if (number < 0) return -1;
            words[used++] = (uint64_t)number;
        }
    }
    uint64_t hash = hash_words(words, (uint32_t)used);
    uint32_t signature = find_entry(words, (uint32_t)used, hash);
    if (!signature) signature = new_signature(layout, values, words, (uint32_t)used, hash);
    return signature ? (int64_t)signature : -1;
}

/* `values` are borrowed from an object that another thread may change as soon as Python runs. */
static int64_t describe(Layout **chain, PyObject *owner, PyObject *title, PyObject **names, PyObject *names_tuple,
                        PyObject **values, int count, Ints *ints, int depth) {
    int64_t number = -1;
    Layout *layout = find_layout(chain, owner, names, values, count);
    if (layout != NULL) {
        for (int i = 0; i < layout->step_count; i++) Py_INCREF(values[layout->steps[i].index]);
        number = describe_as(layout, values, ints, depth);
        for (int i = 0; i < layout->step_count; i++) Py_DECREF(values[layout->steps[i].index]);
        return number;
    }
    for (int i = 0; i < count; i++) Py_INCREF(values[i]);
    layout = new_layout(chain, owner, title, names, names_tuple, values, count);
    if (layout != NULL) number = describe_as(layout, values, ints, depth);
    for (int i = 0; i < count; i++) Py_DECREF(values[i]);
    return number;
}

/* Frees what was interned, when nothing is being described: a long run with ever new sizes keeps its memory bounded. */
static int forget(void) {
    int all = forget_all || layout_count > MAX_LAYOUTS;
    for (uint32_t i = 0; i < entry_count; i++) PyMem_Free(entries[i].words);
    if (table_size) memset(table, 0, sizeof(uint32_t) * table_size);
    first_number += entry_count;
    entry_count = 0;
    forget_soon = forget_all = 0;
    if (!all) return 0;
    for (int i = 0; i < 1024; i++) free_chain(&by_type[i]);
    for (int i = 0; i < 4 * site_count; i++) free_chain(&sites[i / 4]->side[i % 4].layouts);
    text_count = 0;
    generation++;
    PyObject *done = PyObject_CallFunctionObjArgs(on_forget, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}
