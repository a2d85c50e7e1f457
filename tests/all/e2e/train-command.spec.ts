import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { browserWith, debuggedBrowser, debugTab } from '../../support/debugged-browser.ts'
import { freePort } from '../../support/free-port.ts'
import { testOnRealData } from '../../support/real-data.ts'
import { useTrainFolder } from '../../support/train-folder.ts'
import { type Done, mlpBytes, trainWithJson } from '../../support/train-json.ts'

/** `npm run train` as a process: tabs, links, weights and the exit code, as its user sees them. */

const folder = useTrainFolder()

test('--demo: each tab ends with another model when a file of points is given and the exchange is off', async () => {
  const points = join(folder.path, 'points.bin')
  const values = Array.from({ length: 60 }, (_, i) => [Math.sin(i), Math.cos(i), i % 2]).flat()
  await writeFile(points, Float32Array.from(values))
  const flags = [
    '--demo',
    'playground',
    '--data-file',
    points,
    '--nproc-per-node',
    '2',
    '--steps',
    '4',
  ]
  const { child, received } = folder.start(
    {},
    ...['--json', '--adapter', 'software', '--strategy', 'alone', '--partition', 'own-slice'],
    ...['--batch-size', '12', ...flags],
  )
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  const lines = received.stdout.trim().split('\n')
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

test('without flags it finds an adapter, prints progress in lines where there is no terminal, and sums up', async () => {
  const { child, received } = folder.start({}, '--nproc-per-node', '2', '--steps', '2')
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  expect(received.stdout).toMatch(/step 2\/2 {2}loss \d\.\d{4} {2}[\d,]+ samples\/s\n/)
  expect(received.stdout).toMatch(
    /test {11}loss \d\.\d{4}, accuracy [\d.]+ %\nlast step {6}loss \d/,
  )
  expect(received.stdout).toMatch(/sent {11}rank 0 [\d.]+ MiB, rank 1 [\d.]+ MiB\n/)
}, 180_000)

test('with --relay tabs whose browser blocks WebRTC train through the server', async () => {
  // By its name in older and in newer Chromiums.
  const policy = 'webrtc-ip-handling-policy=disable_non_proxied_udp'
  const blocked = await browserWith(folder.path, `--force-${policy} --${policy}`)
  const flags = ['--nproc-per-node', '2', '--steps', '4', '--bucket-cap-mb', '1']
  const links = ['--transport', 'webrtc', '--relay']
  const { child, received } = folder.start(
    { TABRING_BROWSER: blocked },
    '--json',
    '--adapter',
    'software',
    ...flags,
    ...links,
  )
  const [code] = await once(child, 'close')
  expect(code, received.stderr).toBe(0)
  const done = JSON.parse(received.stdout.trim().split('\n').at(-1)!)
  expect(done).toMatchObject({ event: 'done', steps: 4, linksPerRank: [['relay'], ['relay']] })
  expect(new Set(done.paramHashes).size).toBe(1)
  for (const bytes of done.bytesSentPerRank) expect(bytes).toBeGreaterThan(3 * mlpBytes)
}, 120_000)

for (const { model, epochs, min } of [
  { model: 'mlp', epochs: 2, min: 0.95 },
  { model: 'cnn', epochs: 1, min: 0.975 },
]) {
  testOnRealData(
    `three tabs reach ${100 * min} % with ${model} in ${epochs} ${epochs > 1 ? 'epochs' : 'epoch'} of MNIST`,
    'mnist-9k',
    async (data) => {
      const flags = ['--nproc-per-node', '3', '--data', data, '--model', model]
      const { done } = await trainWithJson(folder, ...flags, '--epochs', `${epochs}`)
      expect(done.testAccuracy).toBeGreaterThanOrEqual(min)
    },
    300_000,
  )
}

test('a tab that crashes does not end the run: the others continue, another tab joins, and all agree', async () => {
  const port = await freePort()
  const { child, received } = folder.start(
    { TABRING_BROWSER: await debuggedBrowser(folder.path, port) },
    ...['--json', '--adapter', 'software', '--nproc-per-node', '3', '--steps', '250'],
  )
  const ended = once(child, 'close')
  await new Promise<void>((resolve) =>
    child.stdout.on('data', () => received.stdout.includes('"step":60,') && resolve()),
  )
  ;(await debugTab(port, 'Tabring rank')).crash()
  const [code] = await ended
  expect(code, received.stderr).toBe(0)
  expect(received.stderr).toMatch(
    /train: rank \d: its tab crashed\..* The others continue, and another tab joins them \(restart 1 of 3\)\.\n/,
  )
  const lines = received.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const groups = lines.filter(({ event }) => event === 'regrouped')
  expect(groups.map(({ worldSize }) => worldSize)).toEqual([2, 3])
  expect(groups[0].step).toBeGreaterThanOrEqual(50)
  expect(groups[1].step).toBeGreaterThanOrEqual(groups[0].step)
  const done: Done = lines.at(-1)
  expect(done).toMatchObject({ event: 'done', steps: 250, worldSize: 3 })
  expect(new Set(done.paramHashes).size).toBe(1)
  expect(done.testAccuracy).toBeGreaterThan(0.8)
}, 480_000)
