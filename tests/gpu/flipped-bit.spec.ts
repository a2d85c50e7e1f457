import { expect, test } from 'vitest'
import { ReplicaCheck } from '../../src/ddp/hashes/replica-check.ts'
import { byName, ranksOf, stepAll } from '../support/ddp-ranks.ts'
import { flipBit } from '../support/flip-bit.ts'
import { testRuntime } from '../support/run-op.ts'

test('one flipped bit in one GPU is found, with step, bucket and rank', async () => {
  const run = byName('mlp adamw')
  const runtime = await testRuntime()
  const ranks = await ranksOf(run, 3, run.batchSize, 0.01)
  const checks = await Promise.all(
    ranks.map(({ optimizer }) => ReplicaCheck.create(runtime, optimizer.buckets)),
  )
  await stepAll(ranks, 0, run.batchSize)
  const compareAll = (step: number) =>
    Promise.allSettled(checks.map((check, rank) => check.compare(ranks[rank].group, step)))
  expect((await compareAll(1)).map(({ status }) => status)).toEqual([
    'fulfilled',
    'fulfilled',
    'fulfilled',
  ])

  flipBit(runtime.gpu, ranks[1].optimizer.buckets[2].parameterPool.buffer)
  for (const result of await compareAll(2)) {
    expect(result.status).toBe('rejected')
    expect(String((result as PromiseRejectedResult).reason)).toMatch(
      /after step 2 bucket 2 .*on rank 1/,
    )
  }
  for (const { group, program } of ranks) {
    group.destroy()
    program.destroy()
  }
})
