import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { CheckpointManifest } from '../../../src/data/checkpoint-folder.ts'
import {
  crash,
  folder,
  linesOf,
  start,
  tabOf,
  useDebuggedLauncher,
} from '../../support/debugged-launcher.ts'
import { type Run, says } from '../../support/launcher-process.ts'

/** A user's own training under `tabring run`, whose tabs die: what is printed, and where the next start continues. */

/**
 * Trains 15 steps and keeps every third. Its arguments are `start/rank/step` pairs at which a tab waits to be killed: `x` behind it, and the
 * tab waits before it saves that step, until `go` is called.
 */
const program = `
import { compile, manualSeed, tensorType } from 'tabring'
import { loadCheckpoint, saveCheckpoint, saveModel } from 'tabring/checkpoint'
import { args, env, initProcessGroup } from 'tabring/distributed'
import { Linear, ReLU, Sequential } from 'tabring/nn'
import { mseLoss } from 'tabring/nn/functional'
import { DistributedDataParallel } from 'tabring/nn/parallel'
import { AdamW } from 'tabring/optim'

document.title = 'rank ' + env.RANK
const rank = Number(env.RANK)
const place = (step: number) => env.RESTART_COUNT + '/' + rank + '/' + step

await initProcessGroup()
manualSeed(7)
const net = new Sequential(new Linear(64, 256), new ReLU(), new Linear(256, 64))
const model = new DistributedDataParallel(net, { bucketCapMb: 1 })
const optimizer = new AdamW(model.parameters(), { lr: 0.01 })
const resumed = await loadCheckpoint<{ step: number; bestLoss: number }>({ model, optimizer })
let { step = 0, bestLoss = Number.MAX_VALUE } = resumed ?? {}
console.log('from ' + step + ' best ' + bestLoss)

const train = await compile(
  ({ x, y }) => {
    const loss = mseLoss(model.forward(x), y)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  },
  { x: tensorType([8, 64]), y: tensorType([8, 64]) },
)
// The same for a step and a rank, whichever start it is.
const numbers = (seed: number) => Float32Array.from({ length: 8 * 64 }, (_, i) => Math.sin(seed + i * 0.37))

while (step < 15) {
  const at = 3 * step + rank
  const { loss } = await train.run({ x: numbers(at), y: numbers(at + 0.5) })
  step++
  if (args.includes(place(step))) {
    console.log('waits at ' + step)
    await new Promise(() => undefined)
  }
  if (step % 3 !== 0) continue
  if (args.includes(place(step) + 'x')) {
    console.log('saves ' + step)
    await new Promise<void>((go) => Object.assign(globalThis, { go }))
  }
  const isBest = loss[0] < bestLoss
  bestLoss = Math.min(bestLoss, loss[0])
  await saveCheckpoint({ model, optimizer, step, bestLoss }, { isBest })
}
const bytes = await saveModel(net)
const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
console.log('ends with ' + Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('') + ' best ' + bestLoss)
`

/** The same with a stage of a pipeline on each rank. A middle rank waits while the others are in the step after. */
const pipelineProgram = `
import { compile, manualSeed, tensorType } from 'tabring'
import { loadCheckpoint, saveCheckpoint, saveModel } from 'tabring/checkpoint'
import { args, env, getProcessGroup, initProcessGroup } from 'tabring/distributed'
import { pipeline, Schedule1F1B } from 'tabring/distributed/split'
import { Linear, ReLU, Sequential } from 'tabring/nn'
import { mseLoss } from 'tabring/nn/functional'
import { AdamW } from 'tabring/optim'

document.title = 'rank ' + env.RANK
await initProcessGroup()
manualSeed(7)
const model = new Sequential(new Linear(8, 32), new ReLU(), new Linear(32, 32), new ReLU(), new Linear(32, 8))
const devices = [0, 1, 2].map((rank) => 'rank:' + rank + '/webgpu:0')
const pipe = await pipeline(model, { splitSpec: ['2', '4'], devices })
const schedule = new Schedule1F1B(pipe, { microBatches: 2, lossFn: mseLoss })
const optimizer = new AdamW(model.parameters(), { lr: 0.01 })
const resumed = await loadCheckpoint<{ step: number }>({ model, optimizer })
let { step = 0 } = resumed ?? {}
console.log('from ' + step)
const train = await compile(
  ({ x, y }) => {
    optimizer.zeroGrad()
    const { loss } = schedule.step(x, y)
    optimizer.step()
    return { loss }
  },
  { x: tensorType([8, 8]), y: tensorType([8, 8]) },
  { group: getProcessGroup() },
)
const numbers = (seed: number) => Float32Array.from({ length: 64 }, (_, i) => Math.sin(seed + i * 0.37))
const given = [{ x: (at: number) => numbers(at) }, {}, { y: (at: number) => numbers(at + 0.5) }][Number(env.RANK)]
while (step < 6) {
  await train.run(Object.fromEntries(Object.entries(given).map(([name, of]) => [name, of(step)])) as never)
  step++
  await saveCheckpoint({ model, optimizer, step })
  if (args.includes(env.RESTART_COUNT + '/' + env.RANK + '/' + step)) {
    console.log('waits at ' + step)
    await new Promise(() => undefined)
  }
}
const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', await saveModel(model)))
console.log('ends with ' + Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join(''))
`

useDebuggedLauncher({ 'train.ts': program, 'pipeline.ts': pipelineProgram })

const startIn = (checkpoints: string, ...argv: readonly string[]): Run =>
  start('--nproc-per-node=3', '--checkpoint-dir', checkpoints, ...argv)

const endsOf = (run: Run) => linesOf(run, /^\[(\d)\]: (ends with .*)$/gm)
const beginsOf = (run: Run) => linesOf(run, /^\[(\d)\]: (from .*)$/gm)

const manifestOf = async (name: string): Promise<CheckpointManifest> =>
  JSON.parse(await readFile(join(folder, name, 'checkpoints.json'), 'utf8'))

test('three ranks whose tabs are killed, rank 0 while it writes, end as a run without a break', async () => {
  const whole = startIn('whole', 'train.ts')
  expect(await whole.ended, whole.received.stderr).toBe(0)
  const wanted = endsOf(whole)
  expect(wanted).toHaveLength(3)
  expect(new Set(wanted.map((line) => line.slice(2))).size).toBe(1)

  const run = startIn('kept', '--max-restarts=2', 'train.ts', '0/1/7', '1/0/12x')
  await says(run, '[1]: waits at 7')
  await crash('rank 1')

  await says(run, '[0]: saves 12')
  const kept = join(folder, 'kept')
  const before = await manifestOf('kept')
  expect(before.files.at(-1)?.label).toBe('step-9')
  const tab = await tabOf('rank 0')
  await tab.send('Network.enable')
  // Slow enough to be killed in the middle of the file, which has some 400 KB.
  const network = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 20_000 }
  await tab.send('Network.emulateNetworkConditions', network)
  await tab.send('Runtime.evaluate', { expression: 'go()' })
  let partBytes = 0
  while (partBytes === 0) {
    expect(run.child.exitCode, run.received.stderr).toBeNull()
    const part = (await readdir(kept)).find((name) => name.endsWith('.tmp'))
    if (part)
      partBytes = await stat(join(kept, part)).then(
        (found) => found.size,
        () => 0,
      )
  }
  tab.crash()
  expect(await run.ended, run.received.stderr).toBe(0)

  const { stderr } = run.received
  expect(stderr).toMatch(/rank 1 failed first: its tab crashed/)
  expect(stderr).toMatch(/restart 1 of 2\n[\s\S]*rank 0 failed first: [^\n]*its tab crashed/)
  const froms = beginsOf(run)
  for (const rank of [0, 1, 2]) {
    const own = froms.filter((line) => line.startsWith(`${rank}`))
    expect(own.map((line) => line.split(' ')[2]).sort()).toEqual(['0', '6', '9'])
  }
  expect(endsOf(run)).toEqual(wanted)
  expect((await manifestOf('kept')).best).toBe((await manifestOf('whole')).best)
  // Nothing half written is left.
  expect((await readdir(kept)).filter((name) => !/\.(safetensors|json)$/.test(name))).toEqual([])
})

test('a pipeline whose middle stage is killed restarts to the bits of a run without a break', async () => {
  const whole = startIn('whole-pipeline', 'pipeline.ts')
  expect(await whole.ended, whole.received.stderr).toBe(0)
  const wanted = endsOf(whole)
  expect(new Set(wanted.map((line) => line.slice(2))).size).toBe(1)

  const run = startIn('kept-pipeline', '--max-restarts=1', 'pipeline.ts', '0/1/3')
  await says(run, '[1]: waits at 3')
  await crash('rank 1')
  expect(await run.ended, run.received.stderr).toBe(0)
  expect(run.received.stderr).toMatch(/rank 1 failed first: its tab crashed/)
  expect(beginsOf(run)).toEqual([0, 1, 2].flatMap((rank) => [`${rank} from 0`, `${rank} from 3`]))
  expect(endsOf(run)).toEqual(wanted)
})

test('without --max-restarts a killed tab ends the run, which names its rank', async () => {
  const run = startIn('ended', 'train.ts', '0/2/4')
  await says(run, '[2]: waits at 4')
  await crash('rank 2')
  expect(await run.ended).toBe(1)
  expect(run.received.stderr).toMatch(/^tabring: rank 2 failed first:\nits tab crashed\./m)
  expect(endsOf(run)).toEqual([])
  expect((await manifestOf('ended')).files.map(({ label }) => label)).toEqual(['step-3'])
})
