import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { debuggedBrowser, debugTab } from '../../support/debugged-browser.ts'
import { freePort } from '../../support/free-port.ts'
import { says } from '../../support/launcher-process.ts'
import type { LoggedProcess } from '../../support/program-process.ts'
import { useTrainFolder } from '../../support/train-folder.ts'
import type { Done } from '../../support/train-json.ts'

/** `npm run train -- --nnodes 2` as two processes: two launchers of one machine, as of two. */

const folder = useTrainFolder()

/** Starts the launcher of each node. `flags`: by node. */
async function launchers(
  shared: readonly string[],
  flags: readonly [string[], string[]],
  environment: NodeJS.ProcessEnv = {},
): Promise<[LoggedProcess, LoggedProcess]> {
  const port = await freePort()
  const start = (node: number) =>
    folder.start(
      { TABRING_ROOM_KEY: 'the-key-of-this-very-test', HOME: folder.path, ...environment },
      ...['--json', '--nnodes', '2', '--master-addr', '127.0.0.1', '--master-port', `${port}`],
      ...['--node-rank', `${node}`, ...shared, ...flags[node]],
    )
  return [start(0), start(1)]
}

const linesOf = ({ received }: LoggedProcess) =>
  received.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))

test('the tabs of two launchers train one model, each launcher logs and sums up its own ranks, and that of rank 0 has the weights', async () => {
  const out = join(folder.path, 'weights.safetensors')
  const logs = ['--log-dir', join(folder.path, 'logs')]
  const both = await launchers(
    ['--device', 'cpu', '--steps', '6', ...logs],
    [['--nproc-per-node', '2', '--out', out], []],
  )
  const codes = await Promise.all(both.map((one) => one.ended))
  expect(codes, both.map(({ received }) => received.stderr).join('\n')).toEqual([0, 0])
  const [first, second] = both.map(linesOf)
  expect(first.filter(({ event }) => event === 'step')).toHaveLength(6)
  expect(second.filter(({ event }) => event === 'step')).toEqual([])
  expect(both[1].received.stderr).toContain('train: here: rank 2 of 3; the launcher of rank 0')
  const ends: Done[] = [first.at(-1), second.at(-1)]
  expect(ends.map(({ paramHashes }) => paramHashes.length)).toEqual([2, 1])
  expect(new Set(ends.flatMap(({ paramHashes }) => paramHashes)).size).toBe(1)
  expect(ends.map(({ linksPerRank }) => linksPerRank)).toEqual([
    [
      ['port', 'webrtc'],
      ['port', 'webrtc'],
    ],
    [['webrtc', 'webrtc']],
  ])
  const samples = ends.flatMap(({ samplesPerRank }) => samplesPerRank)
  expect(samples.reduce((sum, one) => sum + one, 0)).toBe(6 * 64)
  expect((await readFile(out)).length).toBeGreaterThan(0)
  for (const rank of [0, 1, 2])
    expect(await readFile(join(folder.path, 'logs', `${rank}`, 'stdout.log'), 'utf8')).toContain(
      'tabring switches: device=cpu',
    )
}, 180_000)

test('a tab of the second machine that crashes is opened again there, and joins the others', async () => {
  const port = await freePort()
  const flags = ['--adapter', 'software', '--steps', '250']
  const TABRING_BROWSER = await debuggedBrowser(folder.path, port)
  const [first, second] = await launchers(flags, [
    [],
    ['--nproc-per-node', '2', '--browser', TABRING_BROWSER],
  ])
  await says(first, '"step":60,')
  ;(await debugTab(port, 'Tabring rank')).crash()
  const codes = await Promise.all([first.ended, second.ended])
  expect(codes, first.received.stderr + second.received.stderr).toEqual([0, 0])
  expect(second.received.stderr).toMatch(
    /train: rank \d: its tab crashed\..* The others continue, and another tab joins them \(restart 1 of 3\)\.\n/,
  )
  const groups = linesOf(first).filter(({ event }) => event === 'regrouped')
  expect(groups.map(({ worldSize }) => worldSize)).toEqual([2, 3])
  const hashes = [first, second].flatMap((one) => linesOf(one).at(-1).paramHashes)
  expect(hashes).toHaveLength(3)
  expect(new Set(hashes).size).toBe(1)
}, 480_000)

test('Ctrl-C on the second machine ends the run on the first, which says so', async () => {
  const [first, second] = await launchers(['--device', 'cpu', '--steps', '5000'], [[], []])
  await says(first, '"event":"step"')
  second.child.kill('SIGINT')
  const [[code], other] = await Promise.all([once(second.child, 'close'), first.ended])
  expect([code, other]).toEqual([130, 1])
  expect(first.received.stderr).toMatch(
    /train: the launcher on \S+ ended before the run did \(interrupted\)\. Check its output\.\n$/,
  )
}, 180_000)
