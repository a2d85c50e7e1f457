import { expect, test } from 'vitest'
import type { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import {
  allreduceHook,
  bf16CompressHook,
  bf16CompressWrapper,
  type CommHook,
  fp16CompressHook,
  fp16CompressWrapper,
} from '../../src/ddp/hooks/comm-hooks.ts'
import { Int8State, int8CompressHook } from '../../src/ddp/hooks/int8-hook.ts'
import { PowerSgdState, powerSgdHook } from '../../src/ddp/hooks/power-sgd.ts'
import { classifiersOf, endAll, train } from './classification.ts'
import { meshOf } from './process-ring.ts'
import { testRuntime } from './run-op.ts'

export const runtime = await testRuntime()

/** Registers a hook. */
export type Register = (ddp: DistributedDataParallel) => void
const powerSgd = (rank = 4) =>
  new PowerSgdState({ matrixApproximationRank: rank, startPowerSgdIter: 4 })
export const builtIn: Record<string, Register> = {
  allreduce: (ddp) => ddp.registerCommHook(null, allreduceHook),
  fp16: (ddp) => ddp.registerCommHook(null, fp16CompressHook),
  bf16: (ddp) => ddp.registerCommHook(null, bf16CompressHook),
  int8: (ddp) => ddp.registerCommHook(new Int8State(), int8CompressHook),
  powerSgd: (ddp) => ddp.registerCommHook(powerSgd(), powerSgdHook),
  'powerSgd in fp16': (ddp) => ddp.registerCommHook(powerSgd(), fp16CompressWrapper(powerSgdHook)),
  'powerSgd in bf16': (ddp) => ddp.registerCommHook(powerSgd(), bf16CompressWrapper(powerSgdHook)),
}

/** A codec that loses what matters: all but the coarsest steps, and nothing is carried on. */
export const broken: CommHook<null> = (_, bucket) => {
  for (const [i, value] of bucket.buffer().entries()) {
    bucket.buffer()[i] = Math.round(value * 4) / 4
  }
  return allreduceHook(null, bucket)
}

/** Bytes that the ranks send for gradients in the second step of a wider classifier. */
async function gradientBytes(size: number, register?: Register): Promise<number> {
  const options = { hidden: 512, bucketCapMb: 1 }
  const groups = await meshOf(size)
  // Where bytes count and hops do not: one shot sends more of them.
  for (const group of groups) group.choice = { ...group.choice, oneShotMaxBytes: 0 }
  const ranks = await classifiersOf(groups, runtime, register, options)
  await train(ranks, 1)
  const sent = () => ranks.reduce((sum, { group }) => sum + group.stats().payloadBytesSent, 0)
  const before = sent()
  await train(ranks, 1)
  const bytes = sent() - before
  const gathered = ranks[0].optimizer.buckets.reduce(
    (sum, { wireElements }) => sum + 4 * wireElements,
    0,
  )
  endAll(ranks)
  return bytes - gathered * (size - 1)
}

/** How far a hook's loss may be from the plain one's, as a share. */
export const band = 0.15

const thin = () => new PowerSgdState({ startPowerSgdIter: 0 })
/** Name, lower and upper bound of the bytes as a share of the plain ones, hook. */
const shares: readonly [string, number, number, Register][] = [
  // Without a hook the words of what ranks count go along with each chunk of the first bucket.
  ['allreduce', 0.99, 1.01, builtIn.allreduce],
  ['fp16', 0.49, 0.51, builtIn.fp16],
  ['bf16', 0.49, 0.51, builtIn.bf16],
  ['int8', 0.25, 0.285, builtIn.int8],
  ['powerSgd', 0.1, 0.24, (ddp) => ddp.registerCommHook(thin(), powerSgdHook)],
  [
    'powerSgd in fp16',
    0.05,
    0.13,
    (ddp) => ddp.registerCommHook(thin(), fp16CompressWrapper(powerSgdHook)),
  ],
]

/** Tests of the bytes that each hook sends, on groups of these sizes. */
export function byteTests(sizes: readonly number[]): void {
  const plain = new Map<number, Promise<number>>()
  test.each(shares)(
    '%s sends from %d to %d of the bytes for gradients',
    async (_, min, max, hook) => {
      for (const size of sizes) {
        if (!plain.has(size)) plain.set(size, gradientBytes(size))
        const share = (await gradientBytes(size, hook)) / (await plain.get(size)!)
        expect(share, `${size} ranks`).toBeGreaterThanOrEqual(min)
        expect(share, `${size} ranks`).toBeLessThanOrEqual(max)
      }
    },
  )
}
