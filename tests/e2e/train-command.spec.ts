import { once } from 'node:events'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readSafetensors } from '../../src/data/safetensors.ts'
import { browserWith } from '../support/debugged-browser.ts'
import { testOnRealData } from '../support/real-data.ts'
import { readWithSpeedscope } from '../support/speedscope.ts'
import { useTrainFolder } from '../support/train-folder.ts'

/** `npm run train` as a process: tabs, links, weights and the exit code, as its user sees them. */

const folder = useTrainFolder()

interface Done {
  worldSize: number
  steps: number
  loss: number
  trainValue: number
  testAccuracy: number
  paramHashes: string[]
  bytesSentPerRank: number[]
  samplesPerRank: number[]
}

/** Runs to the end with `--json`; returns the losses by step and the last line. */
async function trainWithJson(...argv: string[]): Promise<{ losses: number[]; done: Done }> {
  const { child, told } = folder.start({}, '--json', '--adapter', 'software', ...argv)
  const [code] = await once(child, 'close')
  expect(code, told.stderr).toBe(0)
  const lines = told.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const steps = lines.filter(({ event }) => event === 'step')
  expect(steps.map(({ step }) => step)).toEqual(steps.map((_, i) => i + 1))
  const done = lines[lines.length - 1]
  expect(done).toMatchObject({ event: 'done', steps: steps.length })
  expect(new Set(done.paramHashes).size).toBe(1)
  return { losses: steps.map(({ loss }) => loss), done }
}

const mlpBytes = 4 * (784 * 256 + 256 + 256 * 10 + 10)

test('three tabs train on drawn digits, tell each step, and write the weights', async () => {
  const out = join(folder.path, 'weights.safetensors')
  const trace = join(folder.path, 'spans.json')
  const flags = ['--nproc-per-node', '3', '--steps', '24', '--seed', '7', '--out', out]
  const buckets = ['--bucket-cap-mb', '0.2']
  const { losses, done } = await trainWithJson(...flags, ...buckets, '--trace', trace)
  expect(losses).toHaveLength(24)
  expect(losses[23]).toBeLessThan(losses[0] - 0.5)
  expect(done.worldSize).toBe(3)
  expect(done.paramHashes).toHaveLength(3)
  expect(done.samplesPerRank).toEqual([22 * 24, 21 * 24, 21 * 24])
  expect(done.bytesSentPerRank).toHaveLength(3)
  // The steps' gradients and parameters; before them the first parameters, and what measuring the links takes: up to 16 MiB, where they are fast.
  const stepBytes = ((2 * 2) / 3) * mlpBytes * 24
  for (const bytes of done.bytesSentPerRank) {
    expect(bytes).toBeGreaterThan(stepBytes)
    expect(bytes).toBeLessThan(1.01 * stepBytes + mlpBytes + 16 * 2 ** 20)
  }
  const { tensors } = readSafetensors(new Uint8Array(await readFile(out)))
  expect([...tensors.keys()].sort()).toEqual(['0.bias', '0.weight', '2.bias', '2.weight'])
  const { traceEvents } = JSON.parse(await readFile(trace, 'utf8'))
  const { profiles, frames, complaints } = await readWithSpeedscope(trace)
  expect(complaints).toEqual([])
  for (const rank of [0, 1, 2]) {
    for (const track of ['steps', 'kernels', 'collectives']) {
      const own = profiles.filter(({ name }) =>
        name.startsWith(`rank ${rank} (pid ${rank}), ${track}`),
      )
      const events = own.flatMap((profile) => profile.events)
      const spans = events.filter(({ type }) => type === 'O').map(({ frame }) => frames[frame].name)
      const wanted = { steps: ' run 24', kernels: 'matmul', collectives: 'reduceScatter 1' }[track]!
      expect(
        spans.some((name) => name.includes(wanted)),
        `${rank} ${track}`,
      ).toBe(true)
    }
  }
  const opened = profiles.flatMap(({ events }) => events).filter(({ type }) => type === 'O')
  expect(opened).toHaveLength(traceEvents.filter(({ ph }: { ph: string }) => ph === 'X').length)
  expect(await readdir(folder.path)).toEqual(['spans.json', 'weights.safetensors'])
}, 180_000)

test('--demo, with data of a person and the exchange switched off: each tab ends with a model of its own', async () => {
  const points = join(folder.path, 'points.bin')
  const values = Array.from({ length: 60 }, (_, i) => [Math.sin(i), Math.cos(i), i % 2]).flat()
  await writeFile(points, Float32Array.from(values))
  const flags = ['--demo', 'playground', '--given', points, '--nproc-per-node', '2', '--steps', '4']
  const { child, told } = folder.start(
    {},
    ...['--json', '--adapter', 'software', '--strategy', 'alone', '--partition', 'own-slice'],
    ...['--batch-size', '12', ...flags],
  )
  const [code] = await once(child, 'close')
  expect(code, told.stderr).toBe(0)
  const lines = told.stdout.trim().split('\n')
  const done: Done & { metric: string; value: number; heldOutLoss: number } = JSON.parse(
    lines.at(-1)!,
  )
  const [step, tested] = lines.slice(-3).map((line) => JSON.parse(line))
  expect(step).toMatchObject({ event: 'step', step: 4, value: done.trainValue })
  expect(tested).toMatchObject({
    event: 'evaluation',
    step: 4,
    metric: 'accuracy',
    value: done.value,
  })
  expect(tested.loss).toBe(done.heldOutLoss)
  expect(tested.loss).toBeGreaterThan(0)
  expect(done).toMatchObject({ event: 'done', steps: 4, metric: 'accuracy' })
  expect(done.value).toBe(done.testAccuracy)
  expect(new Set(done.paramHashes).size).toBe(2)
  // 48 of the 60 points are for training, 24 a rank: an epoch of 4 steps.
  expect(done.samplesPerRank).toEqual([24, 24])
}, 120_000)

test('without flags it finds an adapter, tells how it goes in lines where there is no terminal, and sums up', async () => {
  const { child, told } = folder.start({}, '--nproc-per-node', '2', '--steps', '2')
  const [code] = await once(child, 'close')
  expect(code, told.stderr).toBe(0)
  expect(told.stdout).toMatch(/step 2\/2 {2}loss \d\.\d{4} {2}[\d,]+ samples\/s\n/)
  expect(told.stdout).toMatch(/test {11}loss \d\.\d{4}, accuracy [\d.]+ %\nlast step {6}loss \d/)
  expect(told.stdout).toMatch(/sent {11}rank 0 [\d.]+ MiB, rank 1 [\d.]+ MiB\n/)
}, 180_000)

test('with --relay tabs whose browser blocks WebRTC train through the server', async () => {
  // By its name in older and in newer Chromiums.
  const policy = 'webrtc-ip-handling-policy=disable_non_proxied_udp'
  const blocked = await browserWith(folder.path, `--force-${policy} --${policy}`)
  const flags = ['--nproc-per-node', '2', '--steps', '4', '--bucket-cap-mb', '1', '--relay']
  const { child, told } = folder.start(
    { TABRING_BROWSER: blocked },
    '--json',
    '--adapter',
    'software',
    ...flags,
  )
  const [code] = await once(child, 'close')
  expect(code, told.stderr).toBe(0)
  const done = JSON.parse(told.stdout.trim().split('\n').at(-1)!)
  expect(done).toMatchObject({ event: 'done', steps: 4, linksPerRank: [['relay'], ['relay']] })
  expect(new Set(done.paramHashes).size).toBe(1)
  for (const bytes of done.bytesSentPerRank) expect(bytes).toBeGreaterThan(3 * mlpBytes)
}, 120_000)

test('Ctrl-C in mid-run ends with 130 and leaves nothing behind', async () => {
  const out = join(folder.path, 'weights.safetensors')
  const { child, told } = folder.start(
    {},
    ...['--json', '--adapter', 'software', '--nproc-per-node', '2', '--out', out, '--debug', '2'],
  )
  while (!told.stdout.includes('"event":"step"')) await once(child.stdout, 'data')
  child.kill('SIGINT')
  const [code] = await once(child, 'close')
  expect(code).toBe(130)
  expect(told.stderr).not.toContain('Error')
  expect(told.stderr).toContain('train: interrupted; no weights were kept\n')
  expect(told.stderr).toMatch(/rank 1: tabring kernels: program \d, run 1, means of 1 runs:\n/)
  expect(await readdir(folder.path)).toEqual([])
}, 180_000)

for (const { model, epochs, least } of [
  { model: 'mlp', epochs: 2, least: 0.95 },
  { model: 'cnn', epochs: 1, least: 0.975 },
]) {
  testOnRealData(
    `three tabs reach ${100 * least} % with ${model} in ${epochs} ${epochs > 1 ? 'epochs' : 'epoch'} of MNIST`,
    'mnist-9k',
    async (data) => {
      const flags = ['--nproc-per-node', '3', '--data', data, '--model', model]
      const { done } = await trainWithJson(...flags, '--epochs', `${epochs}`)
      expect(done.testAccuracy).toBeGreaterThanOrEqual(least)
    },
    300_000,
  )
}
