/* Definitions and records into the mapped memory. */

static uint32_t crc_table[8][256];

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

/* CRC-32 as zlib's. */
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

/* The last word to be written is the first one. */
static void complete(uint32_t length) {
    uint32_t crc = crc32_of(stream + stream_at + 4, length - 4);
    __atomic_store_n((uint32_t *)(stream + stream_at), crc ? crc : 1, __ATOMIC_RELEASE);
    stream_at += length;
}

static void write_head(uint32_t length, uint64_t time, uint32_t step, uint32_t number, int site, int kind, int phase,
                       int thread, int count) {
    uint8_t *at = stream + stream_at;
    uint16_t site16 = (uint16_t)site, thread16 = (uint16_t)thread, count16 = (uint16_t)count;
    memcpy(at + 4, &length, 4);
    memcpy(at + 8, &time, 8);
    memcpy(at + 16, &step, 4);
    memcpy(at + 20, &number, 4);
    memcpy(at + 24, &site16, 2);
    at[26] = (uint8_t)kind;
    at[27] = (uint8_t)phase;
    memcpy(at + 28, &thread16, 2);
    memcpy(at + 30, &count16, 2);
}

/* Whether nobody has truncated the segment: writing past its end would be a SIGBUS for the server. */
static int still_whole(void) {
    struct stat now;
    if (stream == NULL || (fstat(stream_fd, &now) == 0 && (uint64_t)now.st_size >= stream_end)) return 1;
    PyErr_SetString(PyExc_OSError, "its segment was truncated or closed by somebody else");
    return 0;
}

/* Has Python begin a new segment. */
static int rotate(uint32_t length) {
    new_things++;
    PyObject *answer = PyObject_CallFunction(on_rotate, "k", (unsigned long)length);
    if (answer == NULL) return -1;
    Py_DECREF(answer);
    if (stream_at + length > stream_end) { PyErr_SetString(PyExc_RuntimeError, "no room in a new segment"); return -1; }
    return 0;
}

static int define_python(uint32_t number) {
    uint32_t at = number & ((1u << 13) - 1);
    if (python_defined[at].number == number && python_defined[at].generation == generation) return 0;
    PyObject *answer = PyObject_CallFunction(on_ensure, "k", (unsigned long)number);
    if (answer == NULL) return -1;
    Py_DECREF(answer);
    python_defined[at].number = number;
    python_defined[at].generation = generation;
    return 0;
}

/* Writes the definition `number` and what it needs, unless this segment holds them. A segment may be begun on the way:
 * then `generation` has changed, and the caller starts over. */
static int define(uint32_t number) {
    if (number < OWN_NUMBERS) return define_python(number);
    if (number - first_number >= entry_count) { PyErr_SetString(PyExc_RuntimeError, "a forgotten definition"); return -1; }
    uint32_t place = number - first_number, began = generation;
    if (entries[place].generation == generation) return 0;
    int is_signature = entries[place].layout != 0;
    uint32_t size;
    if (is_signature && define(entries[place].layout) < 0) return -1;
    for (uint32_t i = 0; i < entries[place].slot_count; i++)
        if (entries[place].slots[i] && entries[place].slot_kinds[i] != FLAG && define(entries[place].slots[i]) < 0) return -1;
    if (generation != began) return 0;
    Entry *entry = &entries[place];
    uint32_t dims = (uint32_t)(entry->words[0] & 0xFFFF), strides = (uint32_t)(entry->words[0] >> 16 & 0xFFFF);
    size = is_signature ? 4 + 4 * entry->slot_count : 12 + 16 * dims;
    uint32_t length = RECORD_SIZE + (size + 7) / 8 * 8;
    if (stream_at + length > stream_end) return rotate(length);
    if (!still_whole()) return -1;
    write_head(length, 0, size, number, 0, is_signature ? DEFINE_SIGNATURE : DEFINE_TENSOR, 0, 0, 0);
    uint8_t *payload = stream + stream_at + RECORD_SIZE;
    memset(payload + size, 0, length - RECORD_SIZE - size);
    if (is_signature) {
        memcpy(payload, &entry->layout, 4);
        memcpy(payload + 4, entry->slots, 4 * (size_t)entry->slot_count);
    } else {
        int64_t none = -1;
        memcpy(payload, entry->slots, 8);
        memcpy(payload + 8, &dims, 4);
        memcpy(payload + 12, entry->words + 3, 8 * (size_t)dims);
        for (uint32_t i = 0; i < dims; i++) /* no strides: a sparse tensor */
            memcpy(payload + 12 + 8 * (dims + i), strides ? (void *)(entry->words + 3 + dims + i) : (void *)&none, 8);
    }
    complete(length);
    entry->generation = generation;
    put(head_at.definitions, ++definitions);
    return 0;
}

static int write_record(int kind, int site, uint32_t step, uint32_t signature, const int64_t *ints, int count, int phase,
                        int thread, uint64_t time) {
    uint32_t length = RECORD_SIZE + 8u * (uint32_t)count;
    for (int tries = 0;; tries++) {
        uint32_t began = generation;
        if (stream_at + length > stream_end && rotate(length) < 0) return -1;
        if (signature && define(signature) < 0) return -1;
        if (began == generation && stream_at + length <= stream_end) break;
        if (tries == 4) { PyErr_SetString(PyExc_RuntimeError, "a record does not fit into a segment"); return -1; }
    }
    if (!still_whole()) return -1;
    write_head(length, time, step, signature, site, kind, phase, thread, count);
    memcpy(stream + stream_at + RECORD_SIZE, ints, 8 * (size_t)count);
    complete(length);
    put(head_at.records, ++records);
    return 0;
}
