import { describe, expect, test } from 'vitest'
import {
  getCheckpoint,
  putCheckpoint,
  readManifest,
  removeCheckpoint,
} from '../../../src/data/checkpoint-folder.ts'
import { save } from '../../../src/data/saved-tree.ts'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { readState, unpackAt } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { mseLoss } from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { getRngState, manualSeed, setRngState } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { ringOf } from '../../support/process-ring.ts'
import { updateStep } from '../../support/update-step.ts'

/** A promise that is resolved from outside. */
function gate() {
  let resolve!: () => void
  const promise = new Promise<void>((open) => {
    resolve = open
  })
  return { promise, resolve }
}

const textOf = (bytes: Uint8Array | undefined) => bytes && new TextDecoder().decode(bytes)
const bytesOf = (text: string) => new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>
const safetensors = (names: readonly string[]) =>
  names.filter((name) => name.endsWith('.safetensors'))

describe('a folder', () => {
  test('a removed file is gone, the best one too, and the others count', async () => {
    const folder = seenFolder()
    for (const step of [1, 2, 3])
      await putCheckpoint(folder, bytesOf(`${step}`), {
        label: `step-${step}`,
        isBest: step === 2,
        keepLast: 3,
      })
    await removeCheckpoint(folder, 'step-2.safetensors')
    await removeCheckpoint(folder, 'step-9.safetensors')
    const manifest = await readManifest(folder)
    expect(manifest?.files.map(({ name }) => name)).toEqual([
      'step-1.safetensors',
      'step-3.safetensors',
    ])
    expect(manifest).toMatchObject({ best: null, leftover: [] })
    expect([...folder.files.keys()].sort()).toEqual([
      'checkpoints.json',
      'step-1.safetensors',
      'step-3.safetensors',
    ])
  })

  test('keeps the newest, and the best one however old', async () => {
    const folder = seenFolder()
    const put = (step: number, isBest: boolean) =>
      putCheckpoint(folder, bytesOf(`${step}`), { label: `step-${step}`, isBest, keepLast: 2 })
    const bests: (string | undefined)[] = []
    for (const [step, isBest] of [
      [1, true],
      [2, false],
      [3, false],
      [4, false],
      [5, true],
      [6, false],
      [7, false],
    ] as const) {
      await put(step, isBest)
      expect(textOf(await getCheckpoint(folder, 'latest'))).toBe(`${step}`)
      bests.push(textOf(await getCheckpoint(folder, 'best')))
    }
    expect(bests).toEqual(['1', '1', '1', '1', '5', '5', '5'])
    expect([...folder.files.keys()].sort()).toEqual([
      'checkpoints.json',
      'step-5.safetensors',
      'step-6.safetensors',
      'step-7.safetensors',
    ])
    expect((await readManifest(folder))?.leftover).toEqual([])
  })

  test('the best of a run replaces another run’s only when it is better, on the same data', async () => {
    const folder = seenFolder()
    let step = 0
    const bestAfter = async (run: string, on: string, value: number, isBest = true) => {
      const label = `step-${++step}`
      const options = { label, isBest, keepLast: 2, run, score: { on, value } }
      await putCheckpoint(folder, bytesOf(`${run} ${value}`), options)
      return textOf(await getCheckpoint(folder, 'best'))
    }
    expect(await bestAfter('a', 'digits', 0.94)).toBe('a 0.94')
    expect(await bestAfter('b', 'digits', 0.5)).toBe('a 0.94')
    expect(await bestAfter('b', 'digits', 0.97)).toBe('b 0.97')
    expect(await bestAfter('c', 'digits', 0.97)).toBe('b 0.97')
    // Gone back to before it, the run itself says which is its best.
    expect(await bestAfter('b', 'digits', 0.96)).toBe('b 0.96')
    // Numbers on other data say nothing.
    expect(await bestAfter('d', 'files', 0.3)).toBe('d 0.3')
    // A file that was saved between two tests has the score of the last one.
    expect(await bestAfter('d', 'files', 0.3, false)).toBe('d 0.3')
    expect(await bestAfter('e', 'files', 0.2, false)).toBe('d 0.3')
    expect(await bestAfter('e', 'files', 0.4, false)).toBe('e 0.4')
    expect(await bestAfter('f', 'digits', 0.99, false)).toBe('e 0.4')
    // Without the best one the next best of its kind is it.
    await removeCheckpoint(folder, (await readManifest(folder))!.best!)
    expect(textOf(await getCheckpoint(folder, 'best'))).toBe('d 0.3')
  })

  test('a step that is saved again is there once, and stays the best', async () => {
    const folder = seenFolder()
    for (const text of ['by itself', 'by a person'])
      await putCheckpoint(folder, bytesOf(text), {
        label: 'step-29',
        isBest: false,
        keepLast: 2,
        run: 'a',
        score: { on: 'digits', value: 0.5 },
      })
    const manifest = await readManifest(folder)
    expect(manifest!.files).toHaveLength(1)
    expect(textOf(await getCheckpoint(folder, 'best'))).toBe('by a person')
  })

  test('the first file with a score is the best until a better one comes', async () => {
    const folder = seenFolder()
    const put = (value: number) =>
      putCheckpoint(folder, bytesOf(`${value}`), {
        label: `step-${value}`,
        isBest: false,
        keepLast: 3,
        score: { on: 'digits', value },
      })
    await put(0.5)
    await put(0.4)
    expect(textOf(await getCheckpoint(folder, 'best'))).toBe('0.5')
  })

  test('a step that is saved again replaces the first, under another name', async () => {
    const folder = seenFolder()
    const put = (text: string, isBest: boolean) =>
      putCheckpoint(folder, bytesOf(text), { label: 'step-9', isBest, keepLast: 3 })
    await put('first', true)
    await put('second', false)
    expect(textOf(await getCheckpoint(folder, 'latest'))).toBe('second')
    expect(textOf(await getCheckpoint(folder, 'best'))).toBe('first')
    await put('third', true)
    expect(textOf(await getCheckpoint(folder, 'best'))).toBe('third')
    expect(safetensors([...folder.files.keys()])).toHaveLength(1)
  })

  test('the files before a save that fails anywhere are whole, and the next save works', async () => {
    /** Five saves, of which the operation `failing` fails, in the first four; 0: none. */
    const run = async (failing: number) => {
      let operations = 0
      let failed = ''
      const folder = seenFolder((what) => {
        operations++
        if (operations !== failing) return
        failed = what
        throw new Error('the tab died')
      })
      const found = async () => ({
        latest: Number(textOf(await getCheckpoint(folder, 'latest')) ?? 0),
        best: (await readManifest(folder))?.best
          ? Number(textOf(await getCheckpoint(folder, 'best')))
          : 0,
      })
      for (const step of [1, 2, 3, 4, 5]) {
        const before = await found()
        const isBest = step % 2 === 1
        const options = { label: `step-${step}`, isBest, keepLast: 1 }
        const isSaved = await putCheckpoint(folder, bytesOf(`${step}`), options).then(
          () => true,
          () => false,
        )
        // The manifest has switched, or it has not: nothing in between.
        const after = { latest: step, best: isBest ? step : before.best }
        const possible = isSaved ? [after] : [before, after]
        expect(possible, `operation ${failing}: ${failed}`).toContainEqual(await found())
        if (step === 4 && failing === 0) return { operations, failed, folder }
      }
      return { operations, failed, folder }
    }
    const undisturbed = await run(0)
    expect(undisturbed.operations).toBe(11)
    for (let failing = 1; failing <= undisturbed.operations; failing++) {
      const { failed, folder } = await run(failing)
      expect(failed, `operation ${failing}`).not.toBe('')
      const names = safetensors([...folder.files.keys()])
      // Only a file that was written when its tab died, and never named, may stay beside the one that is the latest and the best.
      expect(names.length, failed).toBeLessThanOrEqual(failed === 'write checkpoints.json' ? 2 : 1)
      expect(names, failed).toContain('step-5.safetensors')
    }
  })

  test('a file that has changed, is missing or was never saved is refused by name', async () => {
    const folder = seenFolder()
    expect(await getCheckpoint(folder, 'latest')).toBeUndefined()
    await expect(getCheckpoint(folder, 'best')).rejects.toMatchObject({ code: 'data.missing' })
    for (const step of [1, 2]) {
      await putCheckpoint(folder, bytesOf(`${step}`), {
        label: `step-${step}`,
        isBest: false,
        keepLast: 2,
      })
    }
    await expect(getCheckpoint(folder, 'best')).rejects.toThrow(
      'the folder has no best checkpoint (it has step-1.safetensors, step-2.safetensors)',
    )
    await expect(getCheckpoint(folder, 'step-3.safetensors')).rejects.toThrow(
      'the folder has no file "step-3.safetensors"',
    )
    expect(textOf(await getCheckpoint(folder, 'step-1.safetensors'))).toBe('1')
    folder.files.set('step-2.safetensors', new Blob(['3']))
    await expect(getCheckpoint(folder, 'latest')).rejects.toMatchObject({
      code: 'data.checksum',
      message: expect.stringContaining('Resume from step-1.safetensors.'),
    })
    folder.files.delete('step-2.safetensors')
    await expect(getCheckpoint(folder, 'latest')).rejects.toThrow('"step-2.safetensors" is missing')
    folder.files.set('checkpoints.json', new Blob(['{"version":2}']))
    await expect(getCheckpoint(folder, 'latest')).rejects.toMatchObject({ code: 'data.malformed' })
    // As a browser leaves it that died while it made the file.
    folder.files.set('checkpoints.json', new Blob([]))
    expect(await getCheckpoint(folder, 'latest')).toBeUndefined()
  })
})

/** A model in data parallel on each rank, and a step of it on the CPU. */
async function makeRank(group: ProcessGroup) {
  const model = new Sequential(new Linear(3, 70), new Linear(70, 2))
  const ddp = new DistributedDataParallel(model, { processGroup: group })
  const optimizer = new AdamW(ddp.parameters(), { lr: 0.01 })
  const train = async (steps: number) => {
    const program = await compile(
      updateStep(optimizer, ({ x }) => mseLoss(ddp.forward(x), x.slice(1, 0, 2))),
      { x: tensorType([2, 3]) },
      { runtime: new ReferenceRuntime() },
    )
    for (let step = 0; step < steps; step++) {
      await program.run({ x: Float32Array.from({ length: 6 }, (_, i) => Math.sin(i + step)) })
    }
    program.destroy()
  }
  return { model, ddp, optimizer, train }
}

async function withRanks<T>(
  size: number,
  work: (rank: Awaited<ReturnType<typeof makeRank>>, group: ProcessGroup) => Promise<T>,
): Promise<T[]> {
  const groups = await ringOf(size)
  // One after the other: what they draw comes of one stream in this process.
  const ranks: Awaited<ReturnType<typeof makeRank>>[] = []
  for (const group of groups) {
    manualSeed(5)
    ranks.push(await makeRank(group))
  }
  const ends = await Promise.all(ranks.map((rank, i) => work(rank, groups[i])))
  for (const group of groups) group.destroy()
  return ends
}

describe('random states', () => {
  const states = [10, 11, 12].map((seed) => ({ seed, nextStream: seed, nextStep: 2 * seed }))

  test('each rank takes its state when their number is equal; else all take rank 0’s, and it is reported', async () => {
    setRngState(states[0])
    const file = save(await readState({ step: 1 }, states))
    const received: string[] = []
    const loaded = async (rank: number, size: number) => {
      manualSeed(99)
      const onDifferences = (all: readonly string[]) => void received.push(...all)
      expect(
        await unpackAt('unpackCheckpoint', file, {}, { onDifferences }, { rank, size }),
      ).toEqual({ step: 1 })
      return getRngState()
    }
    for (const rank of [0, 1, 2]) expect(await loaded(rank, 3)).toEqual(states[rank])
    expect(received).toEqual([])
    for (const rank of [0, 1]) expect(await loaded(rank, 2)).toEqual(states[0])
    expect(received).toEqual(
      Array(2).fill("random states of 3 ranks that were seeded separately, now rank 0's on all 2"),
    )
  })

  test('any number of ranks continues with a state that all have in common, and nothing is reported', async () => {
    setRngState(states[1])
    const file = save(await readState({}, [states[1], states[1]]))
    const onDifferences = () => expect.unreachable('nothing differs')
    for (const size of [1, 2, 5]) {
      manualSeed(99)
      await unpackAt('unpackCheckpoint', file, {}, { onDifferences }, { rank: size - 1, size })
      expect(getRngState()).toEqual(states[1])
    }
  })
})

describe('ranks', () => {
  test('a wrapped model is saved and loaded by the ranks that wrapped it, without options', async () => {
    const folder = seenFolder()
    await withRanks(2, async ({ ddp, optimizer }) => {
      const name = await saveCheckpoint({ model: ddp, optimizer, step: 4 }, { folder })
      expect(name).toBe('step-4.safetensors')
      expect(await loadCheckpoint({ model: ddp, optimizer }, { folder })).toEqual({ step: 4 })
    })
    expect(folder.written).toEqual(['step-4.safetensors', 'checkpoints.json'])
  })

  test('global rank 0 alone writes, once, and all wait until the file is there', async () => {
    const begun = gate()
    const writing = gate()
    const folder = seenFolder((what) => {
      if (!what.startsWith('write step')) return undefined
      begun.resolve()
      return writing.promise
    })
    const elsewhere = seenFolder(() => {
      throw new Error('another rank wrote')
    })
    const done: number[] = []
    // Two machines of two tabs each: rank 2 is the first of its machine.
    const saving = withRanks(4, async ({ ddp, optimizer }, group) => {
      const name = await saveCheckpoint(
        { model: ddp, optimizer, step: 3 },
        { processGroup: group, folder: group.rank === 0 ? folder : elsewhere },
      )
      done.push(group.rank)
      return name
    })
    await begun.promise
    // A rank that does not wait would end within these turns.
    for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setTimeout(resolve))
    expect(done).toEqual([])
    writing.resolve()
    expect(await saving).toEqual(Array(4).fill('step-3.safetensors'))
    expect(done).toHaveLength(4)
    expect(folder.written).toEqual(['step-3.safetensors', 'checkpoints.json'])
    expect(elsewhere.written).toEqual([])
  })

  test('a write that fails on rank 0 is an error on all, and the next save works', async () => {
    const folder = seenFolder((what) => {
      if (what === 'write step-1.safetensors') throw new Error('the disk is full')
    })
    const ends = await withRanks(3, async ({ model, optimizer }, group) => {
      const save = (step: number) =>
        saveCheckpoint({ model, optimizer, step }, { processGroup: group, folder })
      const error: unknown = await save(1).catch((thrown) => thrown)
      await save(2)
      return error
    })
    const text =
      'checkpoint: the folder cannot be read or written: the disk is full. Choose another folder, or check its disk.'
    expect(ends).toMatchObject([
      { code: 'file.unwritable', message: text, cause: { message: 'the disk is full' } },
      { code: 'file.unwritable', message: `rank 0: ${text}` },
      { code: 'file.unwritable', message: `rank 0: ${text}` },
    ])
    expect(safetensors(folder.written)).toEqual(['step-2.safetensors'])
  })

  test.each([1, 2, 3])('two ranks save, %i continue with the same state', async (size) => {
    const folder = seenFolder()
    const [saved] = await withRanks(2, async ({ ddp, model, optimizer, train }, group) => {
      await train(3)
      await saveCheckpoint(
        { model: ddp, optimizer, step: 3 },
        { processGroup: group, folder, isBest: true },
      )
      return {
        model: await model.stateDict(),
        optimizer: await optimizer.stateDict(),
        random: getRngState(),
      }
    })
    manualSeed(77)
    const ends = await withRanks(size, async ({ model, optimizer, train }, group) => {
      // The bare model takes what the wrapped one has saved.
      const own = group.rank === 0 ? folder : seenFolder()
      const values = await loadCheckpoint(
        { model, optimizer },
        { processGroup: group, folder: own },
      )
      const state = {
        model: await model.stateDict(),
        optimizer: await optimizer.stateDict(),
        random: getRngState(),
      }
      await train(1)
      return { values, state, steps: (await optimizer.stateDict()).state[0]['step'] }
    })
    for (const { values, state, steps } of ends) {
      expect(values).toEqual({ step: 3 })
      expect(state).toEqual(saved)
      expect(steps).toBe(4)
    }
  })

  test('a checkpoint that rank 0 does not find is missing on all', async () => {
    const ends = await withRanks(2, async ({ model }, group) => {
      const options = { processGroup: group, folder: seenFolder() }
      expect(await loadCheckpoint({ model }, options)).toBeUndefined()
      return loadCheckpoint({ model }, { ...options, which: 'best' }).catch((thrown) => thrown.code)
    })
    expect(ends).toEqual(['data.missing', 'data.missing'])
  })
})

describe('one rank', () => {
  const make = () => new Sequential(new Linear(2, 2))

  test('values are returned beside the parts; a load of some parts leaves the random state unchanged', async () => {
    const folder = seenFolder()
    manualSeed(3)
    const model = make()
    const optimizer = new AdamW(model.parameters())
    const values = { epoch: 4, bestAccuracy: 0.75, record: { shares: [3, 2] }, none: null }
    expect(await saveCheckpoint({ model, optimizer, ...values }, { folder })).toBe(
      'epoch-4.safetensors',
    )
    manualSeed(9)
    const other = make()
    await expect(loadCheckpoint({ model: other }, { folder })).rejects.toThrow(
      'expected the parts model, optimizer, got model',
    )
    const random = getRngState()
    expect(await loadCheckpoint({ model: other }, { folder, strict: false })).toEqual(values)
    expect(await other.stateDict()).toEqual(await model.stateDict())
    expect(getRngState()).toEqual(random)
    await loadCheckpoint({ model: other, optimizer: new AdamW(other.parameters()) }, { folder })
    expect(getRngState().seed).toBe(3)
  })

  test('a part that the file lacks, a reserved name, and bad options are refused', async () => {
    const folder = seenFolder()
    const model = make()
    await saveCheckpoint({ model, step: 1 }, { folder })
    const ema: Module = make()
    await expect(loadCheckpoint({ model, ema }, { folder, strict: false })).rejects.toThrow(
      'expected the parts model, got ema, model',
    )
    await expect(saveCheckpoint({ checkpoint: 1 }, { folder })).rejects.toThrow(
      'the name "checkpoint" is reserved',
    )
    await expect(saveCheckpoint({ model }, { folder, keepLast: 0 })).rejects.toThrow(
      'keepLast must be a whole number above 0',
    )
    await expect(saveCheckpoint({ model }, { isbest: true } as object)).rejects.toThrow(
      'got "isbest"',
    )
    await expect(saveCheckpoint({ model })).rejects.toMatchObject({ code: 'file.unwritable' })
  })
})

test('runs that share a folder keep their own newest files, a person’s stay, and old runs give way', async () => {
  const folder = seenFolder()
  const put = (step: number, run: string, isKept = false) =>
    putCheckpoint(folder, bytesOf(`${run} ${step}`), {
      label: `step-${step}`,
      isBest: false,
      keepLast: 2,
      keepRuns: 2,
      run,
      isKept,
    })
  const contents = async () => {
    const { files } = (await readManifest(folder))!
    return Promise.all(files.map(async ({ name }) => textOf(await getCheckpoint(folder, name))))
  }
  await put(1, 'a', true)
  for (const step of [2, 3, 4]) await put(step, 'a')
  expect(await contents()).toEqual(['a 1', 'a 3', 'a 4'])
  // The same step of another run is another file.
  for (const step of [3, 4, 5]) await put(step, 'b')
  expect(await contents()).toEqual(['a 1', 'a 3', 'a 4', 'b 4', 'b 5'])
  await put(5, 'b', true)
  await put(5, 'b')
  expect(await contents()).toEqual(['a 1', 'a 3', 'a 4', 'b 4', 'b 5'])
  await put(1, 'c')
  expect(await contents()).toEqual(['a 1', 'b 4', 'b 5', 'c 1'])
  for (const step of [6, 7]) await put(step, 'b')
  expect(await contents()).toEqual(['a 1', 'b 5', 'c 1', 'b 6', 'b 7'])
})
