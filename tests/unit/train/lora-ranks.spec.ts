import { describe, expect, test } from 'vitest'
import { task as playground } from '../../../demos/playground/demo.ts'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { getPeftModel, type PeftModel } from '../../../src/nn/lora/peft-model.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'
import { lossesOf, resultsOf, trainRanks } from '../../support/train-ranks.ts'

// Adapters on several ranks of this process, and in checkpoints.

const [features, hidden, classes, batchSize, r] = [40, 128, 3, 12, 8]
const device = 'reference'

/** `seed`: of the base; the adapter is the same. */
function adapted(seed = 3): PeftModel {
  manualSeed(seed)
  const base = new Sequential(new Linear(features, hidden), new ReLU(), new Linear(hidden, classes))
  manualSeed(1)
  return getPeftModel(base, { targetModules: ['0', '2'], r, loraAlpha: 4 })
}

const adapterCount = r * (features + hidden) + r * (hidden + classes)
const baseCount = hidden * (features + 1) + classes * (hidden + 1)

const batchOf = (step: number, start: number, end: number) => ({
  x: uniform(7, step % 3, batchSize * features, -1, 1).subarray(start * features, end * features),
  y: Int32Array.from({ length: batchSize }, (_, i) => (i * 7 + (step % 3)) % classes).subarray(
    start,
    end,
  ),
})

type Wrap = (model: PeftModel, group: ProcessGroup) => Module | Promise<Module>

const ddp: Wrap = (module, processGroup) => new DistributedDataParallel(module, { processGroup })

/** A rank's run: its losses, what it has sent in each step, and the adapter in the end. */
async function train(group: ProcessGroup, { wrap = ddp, steps = 50, isExact = false } = {}) {
  const own = adapted()
  const model = await wrap(own, group)
  // As scripts do: frozen ones are passed over.
  const optimizer = new AdamW(model.parameters(), { lr: 0.02 })
  const share =
    isExact && model instanceof DistributedDataParallel
      ? model.exactShare(batchSize)
      : {
          rows: batchSize / group.size,
          start: (batchSize / group.size) * group.rank,
          end: (batchSize / group.size) * (group.rank + 1),
        }
  const program = await compile(
    ({ x, y }) => {
      const loss = crossEntropy(model.forward(x), y)
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([share.rows, features]), y: tensorType([share.rows], 'i32') },
    { device },
  )
  const losses: number[] = []
  const sent = () => group.stats().payloadBytesSent
  let before = 0
  for (let step = 0; step < steps; step++) {
    if (step === 1) before = sent()
    losses.push((await program.run(batchOf(step, share.start, share.end))).loss[0])
  }
  const bytes = (sent() - before) / (steps - 1)
  const { state } = await optimizer.stateDict()
  const contents = await model.stateDict()
  program.destroy()
  return { losses, bytes, state, contents }
}

const runs = async (size: number, options: Parameters<typeof train>[1] = {}) =>
  (await onRanks(size, (group) => train(group, options))).map(resultOf)

describe('DistributedDataParallel', () => {
  test('follows one rank on 2 and 3, and sends the adapter alone', async () => {
    const [alone] = await runs(1)
    expect(alone.losses[49]).toBeLessThan(alone.losses[0])
    for (const size of [2, 3]) {
      const ranks = await runs(size)
      for (const { losses, bytes, state } of ranks) {
        for (const [step, loss] of losses.entries())
          expect(Math.abs(loss - alone.losses[step]), `step ${step + 1}`).toBeLessThan(1e-5)
        expect(Object.keys(state)).toHaveLength(4)
        const expected = ((2 * (size - 1)) / size) * 4 * adapterCount
        // Parts are padded, and counts and losses of the ranks travel too.
        expect(bytes).toBeGreaterThan(0.95 * expected)
        expect(bytes).toBeLessThan(1.15 * expected)
      }
    }
  })

  test.each([true, false])(
    'receives the base when it wraps unless all ranks have it: %s',
    async (isSame) => {
      const ended = await onRanks(2, async (processGroup) => {
        const model = adapted(isSame ? 3 : 3 + processGroup.rank)
        await new DistributedDataParallel(model, { processGroup }).ready
        const frozen = model.parameters().filter(({ requiresGrad }) => !requiresGrad)
        const received = frozen.filter(({ revision }) => revision > 0).length
        return { received, sha256: await model.baseSha256() }
      })
      const [zero, one] = ended.map(resultOf)
      expect(one.sha256).toBe(zero.sha256)
      expect(one.received).toBe(isSame ? 0 : 4)
    },
  )

  test('ends with one hash on 1, 2 and 3 ranks with exact', async () => {
    const wrap: Wrap = (module, processGroup) =>
      new DistributedDataParallel(module, { processGroup, exact: { virtualWorkers: 6 } })
    const ends = []
    for (const size of [1, 2, 3])
      ends.push(...(await runs(size, { wrap, isExact: true, steps: 10 })))
    for (const { losses, contents, state, bytes } of ends) {
      expect({ losses, contents, state }).toEqual({
        losses: ends[0].losses,
        contents: ends[0].contents,
        state: ends[0].state,
      })
      expect(bytes).toBeLessThan(4 * baseCount)
    }
    expect(Object.keys(ends[0].state)).toHaveLength(4)
  })
})

test('fullyShard of a model with an adapter trains to the losses of one rank, and saves the same base hash', async () => {
  const [alone] = await runs(1, { steps: 10 })
  const wrap: Wrap = async (model, processGroup) => {
    const mesh = await initDeviceMesh(device, [processGroup.size], { processGroup })
    return fullyShard(model, { mesh })
  }
  const [zero, one] = await runs(2, { wrap, steps: 10 })
  // Each rank has the loss of its own half.
  for (const [step, loss] of alone.losses.entries())
    expect((zero.losses[step] + one.losses[step]) / 2, `step ${step + 1}`).toBeCloseTo(loss, 5)
  expect(zero.contents.base_sha256).toEqual(alone.contents['module.base_sha256'])
})

describe('a checkpoint', () => {
  const isBase = (key: string) => /\.(0|2)\.(weight|bias)$/.test(key)

  test('holds adapter, optimizer and the base’s SHA-256, and loads into another model with that base alone', async () => {
    const folder = seenFolder()
    const model = adapted()
    const optimizer = new AdamW(model.parameters())
    const types = { x: tensorType([batchSize, features]), y: tensorType([batchSize], 'i32') }
    const stepOf = (of: PeftModel, by: AdamW) =>
      compile(
        ({ x, y }) => {
          const loss = crossEntropy(of.forward(x), y)
          by.zeroGrad()
          loss.backward()
          by.step()
          return { loss }
        },
        types,
        { device },
      )
    const program = await stepOf(model, optimizer)
    for (let step = 0; step < 3; step++) await program.run(batchOf(step, 0, batchSize))
    const name = await saveCheckpoint({ model, optimizer, step: 3 }, { folder })
    const expected = (await program.run(batchOf(3, 0, batchSize))).loss[0]
    program.destroy()

    const bytes = new Uint8Array(await folder.files.get(name)!.arrayBuffer())
    const keys = [...readSafetensors(bytes).tensors.keys()].filter((key) =>
      key.startsWith('model.'),
    )
    expect(keys.filter(isBase)).toEqual([])
    expect(keys).toContain('model.base_sha256')
    expect(keys).toHaveLength(4 + 1)
    expect(bytes.length).toBeLessThan(4 * (3 * adapterCount) + 4000)

    const again = adapted()
    const next = new AdamW(again.parameters())
    await loadCheckpoint({ model: again, optimizer: next }, { folder })
    const continued = await stepOf(again, next)
    expect((await continued.run(batchOf(3, 0, batchSize))).loss[0]).toBe(expected)
    continued.destroy()

    const other = adapted(4)
    const optimizerOfOther = new AdamW(other.parameters())
    await expect(
      loadCheckpoint({ model: other, optimizer: optimizerOfOther }, { folder }),
    ).rejects.toThrow(
      /trained on a base with SHA-256 [0-9a-f]{64}, got a base with [0-9a-f]{64}\. Load that base first/,
    )
  })

  test('of a state dict by hand says what to do where the base has not been hashed', async () => {
    const state = await adapted().stateDict()
    const model = adapted()
    expect(() => model.loadStateDict(state)).toThrow(/Await model\.baseSha256\(\) before/)
    await model.baseSha256()
    expect(model.loadStateDict(state)).toEqual({ missingKeys: [], unexpectedKeys: [] })
  })

  test('of the built-in training holds the adapter alone, and a run resumes from it', async () => {
    const folder = seenFolder()
    const task = {
      ...playground,
      model: (...given: Parameters<typeof playground.model>) =>
        getPeftModel(playground.model(...given), { targetModules: 'all-linear' }),
    } as unknown as Task
    const settings = { demo: 'playground', model: 'tanh-8-8', data: 'xor', batchSize: 12 } as const
    const run = (more: object, at = folder) =>
      trainRanks(
        2,
        { ...settings, ...more },
        () => new ReferenceRuntime(),
        () => ({ folder: async () => at }),
        task,
      )
    const whole = await run({ steps: 8 }, seenFolder())
    const first = await run({ steps: 4, checkpointEvery: 4 })
    resultsOf(first)
    const second = await run({ steps: 8, checkpointEvery: 0, resume: 'latest' })
    expect(resultsOf(second)[0].paramHash).toBe(resultsOf(whole)[0].paramHash)
    expect(lossesOf(second[0])).toEqual(lossesOf(whole[0]).slice(4))
    const name = [...folder.files.keys()].find((one) => one.endsWith('.safetensors'))!
    const bytes = new Uint8Array(await folder.files.get(name)!.arrayBuffer())
    const keys = [...readSafetensors(bytes).tensors.keys()].filter((key) =>
      key.startsWith('model.'),
    )
    expect(keys.filter(isBase)).toEqual([])
    expect(keys.some((key) => key.endsWith('base_sha256'))).toBe(true)
  })
})
