import { join } from 'node:path'
import { expect, test } from 'vitest'
import {
  crashBrowser,
  debuggedBrowser,
  debugTab,
  debugTabs,
} from '../../support/debugged-browser.ts'
import { freePort } from '../../support/free-port.ts'
import { says } from '../../support/launcher-process.ts'
import { useTrainFolder } from '../../support/train-folder.ts'

/** `npm run train -- --elastic MIN:MAX` as a process, whose tabs or browser crash. */

const folder = useTrainFolder()

/** Starts it in a browser that the test can reach. */
async function start(...argv: string[]) {
  const port = await freePort()
  const { child, received, ended } = folder.start(
    { TABRING_BROWSER: await debuggedBrowser(folder.path, port) },
    ...['--json', '--adapter', 'software', ...argv],
  )
  const prints = (text: string) => says({ child, received, ended }, text)
  const lines = () =>
    received.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
  return { port, received, ended, prints, lines }
}

test('--elastic 1:3 begins with one rank, two join it, and a tab that crashes is opened again and joins', async () => {
  const { port, received, ended, prints, lines } = await start('--elastic', '1:3', '--steps', '250')
  await prints('"worldSize":3')
  ;(await debugTab(port, 'Tabring rank')).crash()
  expect(await ended, received.stderr).toBe(0)
  expect(received.stderr).toMatch(
    /train: rank \d: its tab crashed\..* The others continue, and another tab joins them \(restart 1 of 3\)\.\n/,
  )
  expect(received.stderr).not.toContain('restart 2')
  const groups = lines().filter(({ event }) => event === 'regrouped')
  expect(groups.map(({ worldSize }) => worldSize).join()).toMatch(/^(2,)?3,2,3$/)
  const done = lines().at(-1)
  expect(done).toMatchObject({ event: 'done', steps: 250, worldSize: 3 })
  expect(new Set(done.paramHashes).size).toBe(1)
  expect(done.testAccuracy).toBeGreaterThan(0.9)
}, 480_000)

test('rank 0 and another one of three crash at once, and the one that is left trains on within seconds', async () => {
  const { port, received, ended, prints, lines } = await start(
    // By ports the one that is left knows at once that the others have ended.
    ...['--nproc-per-node', '3', '--steps', '400', '--transport', 'webrtc'],
  )
  // A state is kept every 50 steps.
  await prints('"step":60,')
  const isFirst = ({ url }: { readonly url: string }) => url.includes('role=host')
  const tabs = await debugTabs(port, 'Tabring rank')
  for (const tab of [tabs.find(isFirst)!, tabs.find((one) => !isFirst(one))!]) tab.crash()
  const crashedMs = performance.now()
  await prints('"regrouped"')
  expect(performance.now() - crashedMs).toBeLessThan(15_000)
  expect(await ended, received.stderr).toBe(0)
  expect(received.stderr.match(/its tab crashed\./g)).toHaveLength(2)
  expect(received.stderr).toContain('rank 0: its tab crashed.')
  expect(received.stderr).not.toContain('waits for')
  const undecided = lines().find(({ event }) => event === 'undecided')
  expect(undecided.rank).toBeGreaterThan(0)
  const groups = lines().filter(({ event }) => event === 'regrouped')
  expect(undecided.step).toBeGreaterThan(0)
  expect(groups[0].step).toBe(undecided.step)
  expect(groups.map(({ worldSize }) => worldSize).join()).toMatch(/^1,(2,)?3$/)
  const done = lines().at(-1)
  expect(done).toMatchObject({ event: 'done', steps: 400, worldSize: 3 })
  expect(new Set(done.paramHashes).size).toBe(1)
}, 480_000)

test('a browser that crashes is one restart of all ranks, from the latest checkpoint', async () => {
  const kept = ['--checkpoint-dir', join(folder.path, 'kept'), '--checkpoint-every', '20']
  const { port, received, ended, prints, lines } = await start(
    ...['--elastic', '1:2', '--steps', '200', ...kept],
  )
  await prints('"worldSize":2')
  await prints('"checkpoint"')
  await crashBrowser(port)
  expect(await ended, received.stderr).toBe(0)
  expect(received.stderr).toMatch(
    /train: browser: it crashed or was closed.*\ntrain: restart 1 of 3\n/,
  )
  expect(received.stderr).not.toContain('restart 2')
  const resumed = lines().find(({ event }) => event === 'resumed')
  expect(resumed.step).toBeGreaterThanOrEqual(20)
  expect(lines().at(-1)).toMatchObject({ event: 'done', steps: 200 })
}, 480_000)

test('the run ends and reports it when fewer ranks than MIN are left and no restart is allowed', async () => {
  const { port, received, ended, prints } = await start(
    ...['--elastic', '2:2', '--max-restarts', '0', '--steps', '5000'],
  )
  await prints('"step":3,')
  ;(await debugTab(port, 'Tabring rank')).crash()
  expect(await ended).toBe(1)
  expect(received.stderr).toMatch(
    /train: rank \d: its tab crashed\..* The others continue\.\ntrain: --elastic: 1 of at least 2 ranks left, and no restart\. Raise --max-restarts, or lower MIN\.\n$/,
  )
}, 240_000)

test('a loss that is not a number ends the run without a restart', async () => {
  const { received, ended } = await start('--elastic', '1:1', '--lr', '1e30', '--steps', '50')
  expect(await ended).toBe(1)
  expect(received.stderr).toContain('is not finite')
  expect(received.stderr).not.toContain('restart')
}, 240_000)
