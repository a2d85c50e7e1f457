import { describe, expect, test } from 'vitest'
import { readManifest } from '../../../src/data/checkpoint-folder.ts'
import { readSafetensors, writeSafetensors } from '../../../src/data/safetensors.ts'
import { load } from '../../../src/data/saved-tree.ts'
import {
  type Parts,
  packCheckpoint,
  unpackCheckpoint,
} from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import { StepLR } from '../../../src/optim/lr-scheduler/decays.ts'
import { TabringError } from '../../../src/util/errors.ts'
import { cpuMs } from '../../support/cpu-time.ts'
import { mutatedJson } from '../../support/fuzz/mutate.ts'
import { Draw } from '../../support/simulation/draw.ts'

// Files from strangers: whatever is in them, reading ends soon, with an error of Tabring.

const parts = (): Parts => {
  const model = new Sequential(new Linear(3, 4), new BatchNorm1d(4), new Linear(4, 2))
  const optimizer = new AdamW(model.parameters(), { lr: 1e-3 })
  const scheduler = new StepLR(optimizer, 2)
  return { model, optimizer, scheduler, scaler: new GradScaler() }
}

/** Within time, and with an error of ours that can be shown, or without one. */
async function endsWell(work: () => unknown, what: string): Promise<void> {
  const began = cpuMs()
  try {
    await work()
  } catch (error) {
    if (!(error instanceof TabringError))
      throw new Error(`${what}: ${String(error)}`, { cause: error })
    if (error.message.length >= 1000) throw new Error(`${what}: ${error.message.slice(0, 300)}`)
  }
  expect([what, cpuMs() - began < 2000]).toEqual([what, true])
}

describe('a hostile checkpoint', () => {
  test('ends in an error of Tabring, whichever value of its tree is replaced', async () => {
    const draw = new Draw(1)
    const own = parts()
    const file = await packCheckpoint({ ...own, epoch: 3, cursor: { seed: 1 } })
    const { tensors, metadata } = readSafetensors(file)
    const tree = JSON.parse(metadata['tabring'])
    for (let i = 0; i < 1500; i++) {
      const text = mutatedJson(tree, draw)
      const bad = writeSafetensors(tensors, { tabring: text })
      const what = `mutation ${i}: ${text.slice(0, 300)}`
      await endsWell(() => unpackCheckpoint(bad, own, { onDifferences: () => undefined }), what)
    }
  }, 120_000)

  test('ends in an error of Tabring, whatever its header says', async () => {
    const draw = new Draw(2)
    const file = await packCheckpoint({ ...parts(), epoch: 3 })
    const size = Number(new DataView(file.buffer).getBigUint64(0, true))
    const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + size)))
    const data = file.subarray(8 + size)
    for (let i = 0; i < 1500; i++) {
      const json = new TextEncoder().encode(mutatedJson(header, draw))
      const bad = new Uint8Array(8 + json.length + data.length)
      new DataView(bad.buffer).setBigUint64(0, BigInt(json.length), true)
      bad.set(json, 8)
      bad.set(data, 8 + json.length)
      await endsWell(() => load(bad, 'bad.safetensors'), `header ${i}`)
    }
  }, 120_000)

  test('names the file and what to do', async () => {
    const file = await packCheckpoint(parts())
    const { tensors, metadata } = readSafetensors(file)
    const { state } = JSON.parse(metadata['tabring'])
    const withTree = (text: string) => writeSafetensors(tensors, { tabring: text })
    const deep = withTree(`{"version":1,"state":{"a":${'['.repeat(20_000)}${']'.repeat(20_000)}}}`)
    expect(() => load(deep, 'deep.safetensors')).toThrow(
      'deep.safetensors: expected at most 100 levels, got more. Load a file written by save()',
    )
    const five = withTree(
      JSON.stringify({ version: 1, state: { ...state, checkpoint: { parts: 5 } } }),
    )
    await expect(unpackCheckpoint(five, parts())).rejects.toMatchObject({ code: 'data.malformed' })
  })
})

test('a hostile manifest is refused, and names no file outside its folder', async () => {
  const draw = new Draw(3)
  const entry = {
    name: 'step-1.safetensors',
    label: 'step-1',
    sizeBytes: 1,
    sha256: 'ab'.repeat(32),
  }
  const manifest = { version: 1, files: [entry], best: null, leftover: ['old.safetensors'] }
  const read = (text: string) =>
    readManifest({ read: async () => new Blob([text]) }).then((found) => found)
  expect(await read(JSON.stringify(manifest))).toEqual(manifest)
  for (let i = 0; i < 500; i++) {
    const text = mutatedJson(manifest, draw)
    await endsWell(() => read(text), text.slice(0, 200))
  }
  for (const name of ['../secret', '/etc/passwd', '.env', 'a\\b', ''])
    await expect(
      read(JSON.stringify({ ...manifest, files: [{ ...entry, name }] })),
    ).rejects.toMatchObject({ code: 'data.malformed' })
})

test('a sparse list of 2^32 - 1 parameters is refused at once', async () => {
  const { optimizer } = parts()
  const sparse = new Array(2 ** 32 - 1)
  const bad = [
    { state: {}, param_groups: sparse },
    { state: {}, param_groups: [{ params: sparse }] },
    { state: sparse, param_groups: [{ params: [0] }] },
  ]
  for (const state of bad)
    await endsWell(() => (optimizer as AdamW).loadStateDict(state as never), 'sparse')
})
