import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { putCheckpoint, readManifest } from '../../../src/data/checkpoint-folder.ts'
import { opfsFileStore } from '../../../src/data/file-store.ts'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { openGpu } from '../../../src/gpu/device.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { TrainerResult } from '../../../src/trainer/watch/run-events.ts'
import { rejoiningRingOf } from '../../support/process-ring.ts'
import { serveDigits } from '../../support/served-digits.ts'

// Checkpoints in the browser's own files, and a run on devices that continues from one.

const store = opfsFileStore('tabring-checkpoint-spec')
beforeEach(() => serveDigits(72, (_, i) => (i * 7919) % 251))
afterEach(async () => {
  vi.restoreAllMocks()
  for (const name of ['run', 'other']) await (await store.folder(name)).clear()
})

test('by default they are in the private files, where the latest and the best one are found again', async () => {
  const byDefault = await opfsFileStore('tabring-checkpoints').folder('default')
  await byDefault.clear()
  manualSeed(1)
  const model = new Linear(3, 2)
  expect(await loadCheckpoint({ model })).toBeUndefined()
  const states = []
  for (const step of [1, 2, 3, 4]) {
    model.weight.assign(new Float32Array(6).fill(step))
    states.push(await model.stateDict())
    await saveCheckpoint({ model, step, bestAccuracy: 0.5 }, { isBest: step === 2, keepLast: 1 })
  }
  const other = new Linear(3, 2)
  expect(await loadCheckpoint({ model: other })).toEqual({ step: 4, bestAccuracy: 0.5 })
  expect(await other.stateDict()).toEqual(states[3])
  expect(await loadCheckpoint({ model: other }, { which: 'best' })).toMatchObject({ step: 2 })
  expect(await other.stateDict()).toEqual(states[1])
  expect(await byDefault.read('step-1.safetensors')).toBeUndefined()
  expect(await byDefault.read('step-3.safetensors')).toBeUndefined()
  // A tab that died while it made its first file has left an empty one.
  const fresh = await store.folder('other')
  await fresh.write('checkpoints.json', new Blob([]))
  expect(await loadCheckpoint({ model: other }, { folder: fresh })).toBeUndefined()
  await saveCheckpoint({ model, step: 5 }, { folder: fresh })
  expect(await loadCheckpoint({ model: other }, { folder: fresh })).toEqual({ step: 5 })
  await byDefault.clear()
})

test('two tabs that save into one folder at once take turns: the manifest has both files', async () => {
  const folders = await Promise.all([1, 2, 3].map(() => store.folder('other')))
  await Promise.all(
    folders.map((folder, i) =>
      putCheckpoint(folder, new Uint8Array(1000 + i), {
        label: `step-${i}`,
        isBest: i === 0,
        keepLast: 3,
      }),
    ),
  )
  const manifest = await readManifest(folders[0])
  expect(manifest?.files.map(({ label }) => label).sort()).toEqual(['step-0', 'step-1', 'step-2'])
  expect(manifest?.best).toBe('step-0.safetensors')
})

/** Two ranks with a device each; that of rank `loser` is lost after step `loseAt`. */
async function trainTwo(input: TrainConfigInput, loseAt = 0, loser = 1): Promise<TrainerResult[]> {
  const config = parseTrainConfig({ data: 'images', batchSize: 12, bucketCapMb: 0.3, ...input })
  const opened: Runtime[] = []
  const open = async () => {
    const runtime = new Runtime(await openGpu())
    opened.push(runtime)
    return runtime
  }
  const ends = await Promise.allSettled(
    (await rejoiningRingOf(2)).map(async ({ group, groups, leave }, rank) => {
      let current = await open()
      let isLost = false
      const trainer = new Trainer({
        task,
        runtime: current,
        reopen: async () => {
          current = await open()
          return current
        },
        groups,
        group,
        config,
        baseUrl: 'https://data.example/',
        onEvent: (event) => {
          if (event.event !== 'step' || rank !== loser || isLost || event.step !== loseAt) return
          isLost = true
          current.gpu.device.destroy()
        },
        checkpoints: { folder: () => store.folder('run') },
      })
      try {
        return await trainer.run()
      } finally {
        trainer.destroy()
        leave()
      }
    }),
  )
  for (const { gpu } of opened) gpu.close()
  return ends.map((end) => {
    if (end.status === 'rejected') throw end.reason
    return end.value
  })
}

test.each(['adamw', 'sgd'] as const)(
  '%s: 2 epochs of two devices are 1, a checkpoint and 1 more, also when a device is lost on the way',
  async (optimizer) => {
    const whole = await trainTwo({ optimizer, epochs: 2 })
    await trainTwo({ optimizer, epochs: 1, checkpointEvery: 4 })
    const manifest = await readManifest(await store.folder('run'))
    expect(manifest?.files.map(({ name }) => name)).toEqual([
      'step-4.safetensors',
      'step-6.safetensors',
    ])
    const resumed = { optimizer, epochs: 2, resume: 'step-6.safetensors' }
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
    // What is best so far must not be lost with rank 0.
    const loser = optimizer === 'sgd' ? 0 : 1
    for (const loseAt of [0, 9]) {
      for (const [rank, result] of (await trainTwo(resumed, loseAt, loser)).entries()) {
        const { paramHash, testAccuracy, bestAccuracy, steps, loss } = whole[rank]
        expect(result).toMatchObject({ paramHash, testAccuracy, bestAccuracy, steps, loss })
        expect(result.lostDevices).toBe(loseAt > 0 && rank === loser ? 1 : 0)
      }
    }
    // Before any state is kept a run goes back to the checkpoint that it came from.
    expect(warn.mock.calls.map(String).join()).toContain('Training resumes from step 6.')
  },
  180_000,
)
