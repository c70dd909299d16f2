/* A kernel of hash128.h on vector registers, once for each time that this file is included. It defines HASH_NAME(take).
 *
 * The including file defines
 *
 *   HASH_NAME(x)         x with the kernel's name in it
 *   HASH_TARGET          the attribute that lets a function use the kernel's instructions
 *   HASH_WIDTH           64-bit lanes in a register
 *   HASH_V               the type of a register
 *   HASH_LOAD(p)
 *   HASH_STORE(p, v)
 *   HASH_KEYED(v, d, k)  v, plus d with the two lanes of each pair exchanged, plus in each lane the product of the two
 *                        halves of d XOR k
 *   HASH_SCRAMBLE(v, k)  (v XOR v >> 47 XOR k) times JC_P32_1
 *   HASH_PREFETCH(p)     hint that the cache line at `p`, perhaps beyond the data, will be read soon
 */

#define HASH_COUNT (JC_HASH128_LANES / HASH_WIDTH)
#define HASH_AT(p, i) ((p) + sizeof(HASH_V) * (size_t)(i))

HASH_TARGET __attribute__((always_inline)) static inline void HASH_NAME(stripe)(HASH_V *lanes, const uint8_t *p,
                                                                                const uint8_t *secret)
{
    HASH_PREFETCH((uintptr_t)p + JC_HASH128_AHEAD);
    for (int i = 0; i < HASH_COUNT; i++) {
        lanes[i] = HASH_KEYED(lanes[i], HASH_LOAD(HASH_AT(p, i)), HASH_LOAD(HASH_AT(secret, i)));
    }
}

HASH_TARGET static void HASH_NAME(take)(uint64_t lanes[JC_HASH128_LANES], unsigned at, const uint8_t *p,
                                        size_t count)
{
    HASH_V v[HASH_COUNT];

    for (int i = 0; i < HASH_COUNT; i++) {
        v[i] = HASH_LOAD(HASH_AT((const uint8_t *)lanes, i));
    }
    while (count > 0) {
        unsigned stop = count < JC_HASH128_BLOCK_STRIPES - at ? at + (unsigned)count : JC_HASH128_BLOCK_STRIPES;

        count -= stop - at;
        for (; at < stop; at++, p += JC_HASH128_STRIPE) {
            HASH_NAME(stripe)(v, p, jc_hash128_secret + 8 * at);
        }
        if (at == JC_HASH128_BLOCK_STRIPES) {
            at = 0;
            for (int i = 0; i < HASH_COUNT; i++) {
                v[i] = HASH_SCRAMBLE(v[i], HASH_LOAD(HASH_AT(jc_hash128_secret + 128, i)));
            }
        }
    }
    for (int i = 0; i < HASH_COUNT; i++) {
        HASH_STORE(HASH_AT((uint8_t *)lanes, i), v[i]);
    }
}

#undef HASH_COUNT
#undef HASH_AT
#undef HASH_NAME
#undef HASH_TARGET
#undef HASH_WIDTH
#undef HASH_V
#undef HASH_LOAD
#undef HASH_STORE
#undef HASH_KEYED
#undef HASH_SCRAMBLE
#undef HASH_PREFETCH
