import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { StagedUploads } from '../../src/gpu/staging.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import { cast } from '../../src/graph/functions/shape.ts'
import { Linear } from '../../src/nn/layers.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/counted-means.json'
import {
  type CountedCase,
  countedBatch,
  countedParameters,
  countedRanks,
  endCounted,
  trainCounted,
} from '../support/counted-means.ts'
import { ringOf } from '../support/process-ring.ts'
import { testRuntime } from '../support/run-op.ts'

const distance = (a: readonly number[], b: readonly number[]) =>
  Math.max(...a.map((value, i) => Math.abs(value - b[i])))

const some = [
  'samples, 3 ranks',
  'class numbers, 4 and 1',
  'class numbers in micro-steps',
  'micro-steps of one rank',
  'nothing counted',
]
test.each(golden.cases.filter(({ name }) => some.includes(name)))(
  '$name: ranks and micro-steps weigh by what counts, as torch does by hand',
  async (one) => {
    const ranks = await countedRanks(one, await testRuntime())
    const losses = await trainCounted(ranks, one, 4)
    const parameters = await countedParameters(ranks)
    endCounted(ranks)
    for (const other of parameters) expect(other).toEqual(parameters[0])
    const bound = 5 * Math.max(one.distance, 2e-7)
    expect(distance(parameters[0], one.parameters)).toBeLessThan(bound)
    for (const own of losses) {
      for (const [step, loss] of one.losses.entries()) {
        expect(Math.abs(own[step] - loss), `step ${step}`).toBeLessThan(bound)
      }
    }
  },
)

test('a step whose weights do not add up is refused on all ranks, changes nothing, and the next one runs', async () => {
  const one: CountedCase = { kind: 'samples', counts: [[8], [8]] }
  const runtime = await testRuntime()
  for (const clipsTo of [undefined, 0.1]) {
    const ranks = await countedRanks(one, runtime, { clipsTo })
    const before = await countedParameters(ranks)
    const run = (step: number, weights: readonly number[]) =>
      Promise.allSettled(
        ranks.map(({ run }, rank) => {
          const { x, y } = countedBatch(one, step, rank)
          return run(x, y, { gradientWeight: weights[rank] })
        }),
      )
    for (const outcome of await run(0, [0.8, 0.8])) {
      const message = expect.stringMatching(/^gradientWeight: .* got 1.6\. /)
      expect(outcome).toMatchObject({ status: 'rejected', reason: { message } })
    }
    expect(await countedParameters(ranks)).toEqual(before)
    await run(1, [0.5, 0.5])
    const after = await countedParameters(ranks)
    endCounted(ranks)
    const plain = await countedRanks(one, runtime, { clipsTo })
    await Promise.all(
      plain.map(({ run }, rank) => {
        const { x, y } = countedBatch(one, 1, rank)
        return run(x, y, {})
      }),
    )
    expect(after).toEqual(await countedParameters(plain))
    endCounted(plain)
  }
})

test.each(['i32', 'f32'] as const)(
  'class numbers in upload memory are counted and checked too: %s',
  async (dtype) => {
    const runtime = await testRuntime()
    const [rows, classes] = [4, 3]
    const stepped = async (isStaged: boolean) => {
      const groups = await ringOf(2)
      return Promise.all(
        groups.map(async (group, rank) => {
          const model = new Linear(2, classes)
          model.weight.assign(new Float32Array(2 * classes).fill(0.25))
          model.bias?.assign(new Float32Array(classes))
          const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb: 1 })
          const optimizer = new SGD(ddp.parameters(), { lr: 1 })
          const program = await compile(
            ({ x, y }) => {
              const loss = crossEntropy(ddp.forward(x), cast(y, 'i32'))
              optimizer.zeroGrad()
              loss.backward()
              optimizer.step()
              return { loss }
            },
            { x: tensorType([rows, 2]), y: tensorType([rows], dtype) },
            { runtime },
          )
          const x = Float32Array.from({ length: 2 * rows }, (_, i) => (i % 3) - rank)
          const array = dtype === 'i32' ? Int32Array : Float32Array
          const y = array.from(rank === 0 ? [0, 1, 2, 0] : [-100, 2, -100, -100])
          const batch = {
            x: { data: x, shape: [rows, 2] },
            y: { data: y, shape: [rows] },
          }
          const uploads = new StagedUploads(runtime.gpu)
          const { loss } = await program.run(isStaged ? await uploads.pin(batch) : { x, y })
          const wrong = { x: batch.x, y: { data: array.of(0, 1, 2, 3), shape: [rows] } }
          if (isStaged)
            await expect(async () => program.check(await uploads.pin(wrong), {})).rejects.toThrow(
              'crossEntropy: class 3 of sample 3 in input "y"',
            )
          const weights = [...(await model.weight.read())]
          program.destroy()
          group.destroy()
          uploads.destroy()
          return { loss: loss[0], weights }
        }),
      )
    }
    const [plain, staged] = [await stepped(false), await stepped(true)]
    expect(staged).toEqual(plain)
    expect(staged[1]).toEqual(staged[0])
  },
)
