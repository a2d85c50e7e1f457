import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { diskModelFolder } from '../../../node/model-folder.ts'
import { readTextTable } from '../../../src/data/language/text-table.ts'
import { tokenizeTexts } from '../../../src/data/language/tokenize-texts.ts'
import {
  type AdapterFiles,
  loadAdapter,
  saveAdapter,
  saveMerged,
} from '../../../src/ddp/checkpoint/adapter-file.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { generate } from '../../../src/generation/generate.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { getPeftModel } from '../../../src/nn/lora/peft-model.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { loadPretrained } from '../../../src/pretrained/load-pretrained.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { type Files, shardedFiles } from '../../support/pretrained-folder.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// The whole way: a folder, an adapter trained on text by several ranks, and what other programs load.

const device = 'cpu'
const [batch, blockSize, steps] = [4, 24, 20]
const folders: string[] = []

function folderWith(files: Files): string {
  const folder = mkdtempSync(join(tmpdir(), 'tabring-model-'))
  folders.push(folder)
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes)
  return folder
}

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true })
})

const files = await shardedFiles(1 / 8)
const folder = folderWith(files)
const rows = Array.from({ length: 24 }, (_, i) => `What is ${i} and one?,It is ${i + 1}.`)
const text = new File([['prompt,completion', ...rows].join('\n')], 'sums.csv')

async function logitsOf(model: { forward(tokens: Tensor): Tensor }): Promise<number[]> {
  const type = tensorType([1, 4], 'i32')
  const program = await compile(
    ({ tokens }) => ({ logits: model.forward(tokens) }),
    { tokens: type },
    { device },
  )
  const { logits } = await program.run({ tokens: Int32Array.of(9, 4, 300, 12) })
  program.destroy()
  return [...logits]
}

async function fineTune(group: ProcessGroup) {
  const { model: base, tokenizer } = await loadPretrained(diskModelFolder(folder))
  const table = await readTextTable(text)
  const { train } = await tokenizeTexts(table, tokenizer, { blockSize })
  manualSeed(1)
  const model = getPeftModel(base, { targetModules: 'all-linear', r: 4 })
  const ddp = new DistributedDataParallel(model, { processGroup: group })
  const optimizer = new AdamW(ddp.parameters(), { lr: 0.02 })
  const own = batch / group.size
  const type = tensorType([own, blockSize], 'i32')
  const step = await compile(
    ({ tokens, labels }) => {
      const loss = base.loss(tokens, labels, { chunk: 16 })
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { tokens: type, labels: type },
    { device },
  )
  const said = async (disableAdapter: boolean) => {
    const got: number[] = []
    const prompt = [...tokenizer.encode('What is 3')]
    for await (const token of generate(model, prompt, { maxNewTokens: 4, disableAdapter }))
      got.push(token)
    return got
  }
  const before = await said(false)
  const losses: number[] = []
  for (let n = 0; n < steps; n++) {
    const samples = Array.from({ length: own }, (_, i) =>
      train.get((n * batch + group.rank * own + i) % train.length),
    )
    const joined = (field: 'tokens' | 'labels') =>
      Int32Array.from(samples.flatMap((sample) => [...sample[field].data]))
    const { loss } = await step.run({ tokens: joined('tokens'), labels: joined('labels') })
    losses.push(loss[0])
  }
  step.destroy()
  expect(await said(true)).toEqual(before)
  const results = { adapter: await saveAdapter(model), merged: await saveMerged(model) }
  return { losses, logits: await logitsOf(model), ...results }
}

async function expectLoads(adapter: AdapterFiles, merged: Files[string], logits: number[]) {
  const { model } = await loadPretrained(diskModelFolder(folder))
  expect(await logitsOf(await loadAdapter(model, adapter))).toEqual(logits)
  const others = Object.entries(files).filter(([name]) => /^(config|tokenizer).*json$/.test(name))
  const whole = folderWith({ ...Object.fromEntries(others), 'model.safetensors': merged })
  const again = await logitsOf((await loadPretrained(diskModelFolder(whole))).model)
  for (const [i, logit] of again.entries()) expect(Math.abs(logit - logits[i])).toBeLessThan(1e-5)
}

test('loadPretrained, an adapter and DDP follow one rank on 2, and what they save loads again', async () => {
  const [alone] = (await onRanks(1, fineTune)).map(resultOf)
  const ranks = (await onRanks(2, fineTune)).map(resultOf)
  expect(alone.losses[steps - 1]).toBeLessThan(alone.losses[0] - 0.1)
  for (const { losses, logits } of ranks) {
    for (const [i, loss] of losses.entries())
      expect(Math.abs(loss - alone.losses[i]), `step ${i + 1}`).toBeLessThan(1e-5)
    expect(logits).toEqual(ranks[0].logits)
  }
  const [{ adapter, merged, logits }] = ranks
  await expectLoads(adapter, merged, logits)
})
