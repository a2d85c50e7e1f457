import { describe, expect, test } from 'vitest'
import { chunkRange } from '../../../src/peer/algorithms/plan.ts'
import { Float16Bits } from '../../../src/peer/collective/float16-bits.ts'
import { halfBits, halfValue } from '../../../src/util/half.ts'
import { seededRandom, VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing } from '../../support/memory-ring.ts'

const sizes = Array.from({ length: 9 }, (_, index) => index + 1)
const small = { session: { windowBytes: { memory: 8192, port: 8192, webrtc: 8192, relay: 8192 } } }

/** One buffer a rank, with magnitudes far apart so that the order of additions shows in the bits. */
function randomBuffers(size: number, length: number, seed: number): Float32Array[] {
  const random = seededRandom(seed)
  return Array.from({ length: size }, () =>
    Float32Array.from({ length }, () => (random() - 0.5) * 10 ** Math.floor(random() * 6)),
  )
}

/** The definition: chunk c sums rank c+1, c+2, ..., c from left to right, rounding to float32 each time. */
function sumInRingOrder(buffers: Float32Array[], alignment = 1): Float32Array {
  const size = buffers.length
  const sum = new Float32Array(buffers[0]!.length)
  for (let chunk = 0; chunk < size; chunk++) {
    const { start, end } = chunkRange(sum.length, size, chunk, alignment)
    for (let i = start; i < end; i++) {
      let total = buffers[(chunk + 1) % size]![i]!
      for (let hop = 2; hop <= size; hop++)
        total = Math.fround(total + buffers[(chunk + hop) % size]![i]!)
      sum[i] = total
    }
  }
  return sum
}

function bits(values: Float32Array): Uint32Array {
  return new Uint32Array(values.buffer, values.byteOffset, values.length)
}

function jittery(env: VirtualEnv) {
  return () => ({ delayMs: () => env.chance() * 20, maxMessageBytes: 1024 })
}

describe.each(sizes)('%i ranks', (size) => {
  const lengths = [...new Set([0, 1, Math.max(0, size - 1), size, size + 1, 1009, 6000])]

  test.each(lengths)(
    'all-reduce of %i elements is the sum in ring order, bit for bit',
    async (length) => {
      const env = new VirtualEnv(size * 7919 + length)
      const { groups } = memoryRing(env, size, jittery(env), small)
      const buffers = randomBuffers(size, length, length + 1)
      const expected = sumInRingOrder(buffers)
      const exact = Float64Array.from({ length }, (_, i) =>
        buffers.reduce((sum, buffer) => sum + buffer[i]!, 0),
      )
      const scale = Float64Array.from({ length }, (_, i) =>
        buffers.reduce((sum, buffer) => sum + Math.abs(buffer[i]!), 0),
      )
      await env.until(Promise.all(groups.map((group, rank) => group.allReduce(buffers[rank]!))))
      for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected))
      for (let i = 0; i < length; i++)
        expect(Math.abs(expected[i]! - exact[i]!)).toBeLessThanOrEqual(size * 6e-8 * scale[i]!)
    },
  )

  test.each(lengths)(
    'reduce-scatter, then all-gather of %i elements equals all-reduce',
    async (length) => {
      const env = new VirtualEnv(size * 31 + length)
      const { groups } = memoryRing(env, size, jittery(env), small)
      const buffers = randomBuffers(size, length, length + 2)
      const expected = sumInRingOrder(buffers, 4)
      await env.until(
        Promise.all(
          groups.map(async (group, rank) => {
            const buffer = buffers[rank]!
            await group.reduceScatter(buffer, { sequence: 9, bucket: 1, alignment: 4 })
            const own = group.ownRange(length, 4)
            expect(bits(buffer.slice(own.start, own.end))).toEqual(
              bits(expected.slice(own.start, own.end)),
            )
            // What is not ours is undefined now: make sure that nothing of it survives.
            buffer.fill(Number.NaN, 0, own.start)
            buffer.fill(Number.NaN, own.end)
            await group.allGather(buffer, { sequence: 9, bucket: 1, alignment: 4 })
          }),
        ),
      )
      for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected))
    },
  )

  test('broadcast from every root', async () => {
    for (let root = 0; root < size; root++)
      for (const length of [0, 1500]) {
        const env = new VirtualEnv(root + 1)
        const { groups } = memoryRing(env, size, jittery(env), small)
        const buffers = randomBuffers(size, length, root + 3)
        const expected = buffers[root]!.slice()
        await env.until(
          Promise.all(groups.map((group, rank) => group.broadcast(buffers[rank]!, root))),
        )
        for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected))
      }
  })

  test('barrier resolves on all ranks when the last one has called it', async () => {
    const env = new VirtualEnv(4)
    const { groups } = memoryRing(env, size, jittery(env))
    let isOpen = false
    const early = Promise.all(groups.slice(1).map((group) => group.barrier())).then(() => {
      isOpen = true
    })
    await env.advance(5000)
    expect(isOpen).toBe(size === 1)
    await env.until(Promise.all([early, groups[0]!.barrier()]))
  })

  test('all-gathers return records: numbers, and bytes of different lengths', async () => {
    const env = new VirtualEnv(6)
    const { groups } = memoryRing(env, size, jittery(env))
    const numbers = await env.until(
      Promise.all(
        groups.map((group, rank) => group.allGatherU32(Uint32Array.of(0x7fc00001 + rank, rank))),
      ),
    )
    const records = await env.until(
      Promise.all(
        groups.map((group, rank) =>
          group.allGatherBytes(new TextEncoder().encode('x'.repeat(rank))),
        ),
      ),
    )
    for (let rank = 0; rank < size; rank++) {
      expect([...numbers[rank]!]).toEqual(
        Array.from({ length: size }, (_, other) => [0x7fc00001 + other, other]).flat(),
      )
      expect(records[rank]!.map((bytes) => new TextDecoder().decode(bytes))).toEqual(
        Array.from({ length: size }, (_, other) => 'x'.repeat(other)),
      )
    }
  })

  test('each rank sends 2(N-1)/N of the bytes', async () => {
    const env = new VirtualEnv(8)
    const { groups } = memoryRing(env, size)
    const buffers = randomBuffers(size, 2520, 3)
    await env.until(Promise.all(groups.map((group, rank) => group.allReduce(buffers[rank]!))))
    for (const group of groups)
      expect(group.stats().payloadBytesSent).toBe(((2 * (size - 1)) / size) * 4 * 2520)
  })
})

test('a mean divides every chunk once: no rank averages a chunk that is still a partial sum', async () => {
  const env = new VirtualEnv(2)
  const { groups } = memoryRing(env, 4, jittery(env))
  const buffers = randomBuffers(4, 1001, 77)
  const expected = sumInRingOrder(buffers).map((value) => Math.fround(value / 4))
  await env.until(
    Promise.all(groups.map((group, rank) => group.allReduce(buffers[rank]!, { op: 'avg' }))),
  )
  for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected))
})

test('Float16Bits refuses a list when one of its entries is no number', () => {
  expect(() => Float16Bits.encode([1, '2' as never])).toThrow(/^Float16Bits.encode: values/)
})

test('a mean of halves does not leave their range, where their sum would', async () => {
  for (const algorithm of ['ring', 'direct', 'oneShot'] as const) {
    const env = new VirtualEnv(2)
    const groups = memoryMesh(env, 4)
    const given = { op: 'avg', algorithm } as const
    const means = groups.map(() => Float16Bits.encode([30_000, -60_000]))
    await env.until(Promise.all(groups.map((group, rank) => group.allReduce(means[rank]!, given))))
    for (const mean of means)
      expect([...mean].map(halfValue)).toEqual(
        [30_000, -60_000].map((one) => halfValue(halfBits(one))),
      )
  }
})

test('a fast rank does not overwrite another step when one rank is far slower', async () => {
  const env = new VirtualEnv(3)
  // The link into rank 2 is a hundred times slower, so steps pile up behind it.
  const { groups } = memoryRing(env, 5, (rank) => ({
    delayMs: () => (rank === 1 ? 100 : 1) * env.chance(),
    maxMessageBytes: 1024,
  }))
  const buffers = randomBuffers(5, 4001, 5)
  const expected = sumInRingOrder(buffers)
  await env.until(Promise.all(groups.map((group, rank) => group.allReduce(buffers[rank]!))))
  for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected))
})

test('the next bucket starts before the last has ended', async () => {
  const env = new VirtualEnv(9)
  const spans: { bucket: number; firstSentMs: number; endedMs: number }[] = []
  const { groups } = memoryRing(
    env,
    3,
    () => ({ delayMs: () => 5 }),
    {},
    {
      onspan: (span) => spans.push(span),
    },
  )
  const first = randomBuffers(3, 40_000, 1)
  const second = randomBuffers(3, 40_000, 2)
  const expected = [sumInRingOrder(first), sumInRingOrder(second)]
  await env.until(
    Promise.all(
      groups.flatMap((group, rank) => [
        group.allReduce(first[rank]!, { sequence: 0, bucket: 0 }),
        group.allReduce(second[rank]!, { sequence: 0, bucket: 1 }),
      ]),
    ),
  )
  for (const buffer of first) expect(bits(buffer)).toEqual(bits(expected[0]!))
  for (const buffer of second) expect(bits(buffer)).toEqual(bits(expected[1]!))
  const started = Math.min(
    ...spans.filter((span) => span.bucket === 1).map((span) => span.firstSentMs),
  )
  const ended = Math.max(...spans.filter((span) => span.bucket === 0).map((span) => span.endedMs))
  expect(started).toBeLessThan(ended)
})

test.each([2, 3, 4, 5])(
  '%i ranks: onstarted comes once, when the last rank has begun',
  async (size) => {
    const env = new VirtualEnv(10)
    const { groups } = memoryRing(env, size, () => ({ delayMs: () => 5 }))
    const allBegunMs = groups.map((): number[] => [])
    const begin = (rank: number) =>
      groups[rank]!.allReduce(new Float32Array(100), {
        onstarted: () => allBegunMs[rank]!.push(env.now()),
      })
    const early = groups.slice(1).map((_, i) => begin(i + 1))
    const beganMs = env.now()
    await env.advance(1000)
    expect(allBegunMs.flat()).toEqual([])
    await env.until(Promise.all([...early, begin(0)]))
    // Its neighbours hear it from itself, the others in the direction of the ring.
    expect(allBegunMs.map((times) => times.map((ms) => Math.round(ms - beganMs)))).toEqual(
      groups.map((_, rank) => [1000 + 5 * (rank === size - 1 ? 1 : rank)]),
    )
  },
)

test.each([2, 3, 5])(
  '%i ranks launch buckets in different orders, with windows far smaller than a bucket',
  async (size) => {
    for (let seed = 1; seed <= 6; seed++) {
      const env = new VirtualEnv(seed)
      const { groups } = memoryRing(env, size, jittery(env), small)
      const buckets = Array.from({ length: 4 }, (_, bucket) =>
        randomBuffers(size, 3000, seed * 10 + bucket),
      )
      const expected = buckets.map((buffers) => sumInRingOrder(buffers))
      const bucketRun = async (rank: number, bucket: number) => {
        const group = groups[rank]!
        const buffer = buckets[bucket]![rank]!
        await new Promise<void>((resolve) => {
          env.after(env.chance() * 300, resolve)
        })
        await group.reduceScatter(buffer, { sequence: 1, bucket })
        await new Promise<void>((resolve) => {
          env.after(env.chance() * 300, resolve)
        })
        await group.allGather(buffer, { sequence: 1, bucket })
      }
      await env.until(
        Promise.all(
          groups.flatMap((_, rank) => buckets.map((_, bucket) => bucketRun(rank, bucket))),
        ),
        20_000,
      )
      buckets.forEach((buffers, bucket) => {
        for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected[bucket]!))
      })
    }
  },
)

test('early data is held within half of the window and never credited before its collective is launched', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 2, () => ({ maxMessageBytes: 1024 }), small)
  const buffers = randomBuffers(2, 20_000, 1)
  const expected = sumInRingOrder(buffers)
  const early = groups[0]!.allReduce(buffers[0]!)
  await env.advance(3000)
  const held = groups[0]!.stats().payloadBytesSent
  expect(held).toBeGreaterThan(0)
  expect(held).toBeLessThanOrEqual(4096)
  expect(groups[1]!.stats().inFlight.heldBytes).toBeGreaterThanOrEqual(held)
  await env.until(Promise.all([early, groups[1]!.allReduce(buffers[1]!)]))
  // The simulations hold it against the window.
  expect(groups[1]!.stats().inFlight.peakHeldBytes).toBeGreaterThanOrEqual(held)
  for (const buffer of buffers) expect(bits(buffer)).toEqual(bits(expected))
})

test('leave fails no other rank: the others receive a goodbye', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 3, jittery(env))
  const buffers = randomBuffers(3, 5000, 1)
  await env.until(
    Promise.all(
      groups.map(async (group, rank) => {
        await group.allReduce(buffers[rank]!)
        await group.leave()
      }),
    ),
    4000,
  )
  for (const group of groups) expect(group.error).toBeUndefined()
})

test('a group of one resolves at once and keeps its values', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 1)
  const buffer = Float32Array.of(1, 2, 3)
  await groups[0]!.allReduce(buffer)
  await groups[0]!.ready()
  expect([...buffer]).toEqual([1, 2, 3])
})
