import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import {
  family,
  folder,
  receivedByRank,
  start,
  useLauncherFolder,
  write,
} from '../support/launcher-folder.ts'
import { says } from '../support/launcher-process.ts'

/** `tabring run` as a process, on a user's own modules. */

useLauncherFolder()

test('three ranks have environment, arguments, packages, output by rank, and WebRTC links', async () => {
  await write(
    'train.ts',
    "import { answer } from 'some-package'",
    "import { args, env, reportProgress } from 'tabring/distributed'",
    "import { meet } from './meet.ts'",
    'export default async function main(given: { env: typeof env; args: readonly string[] }) {',
    '  const met = await meet()',
    '  reportProgress({ step: 5, totalSteps: 5, loss: 0.25 })',
    "  console.warn('two\\nlines')",
    "  console.log(JSON.stringify({ ...env, answer, met: met.join(), args: args.join(' '), same: given.env === env && given.args === args }))",
    '}',
  )
  const run = start('run', [
    '--nproc_per_node',
    '3',
    '--log-dir',
    'logs',
    '--max-restarts=2',
    'train.ts',
    '--lr',
    '0.1',
    '--headed',
  ])
  expect(await run.ended, run.received.stderr).toBe(0)
  const received = receivedByRank(run.received.stdout)
  expect(received.map(({ RANK }) => RANK)).toEqual(['0', '1', '2'])
  expect(received.map(({ LOCAL_RANK }) => LOCAL_RANK)).toEqual(['0', '1', '2'])
  for (const one of received) {
    expect(one).toMatchObject({
      WORLD_SIZE: '3',
      LOCAL_WORLD_SIZE: '3',
      GROUP_RANK: '0',
      NODE_RANK: '0',
      MASTER_ADDR: '127.0.0.1',
      MASTER_URL: `ws://localhost:${one.MASTER_PORT}/signal`,
      ROOM_ID: received[0].ROOM_ID,
      RUN_ID: received[0].RUN_ID,
      RESTART_COUNT: '0',
      MAX_RESTARTS: '2',
      answer: 42,
      met: '0,1,2',
      args: '--lr 0.1 --headed',
      same: true,
    })
  }
  expect(run.received.stdout).toContain('step 5/5  loss 0.2500\n')
  for (const rank of [0, 1, 2]) {
    expect(run.received.stderr).toContain(`[${rank}]: two\n[${rank}]: lines\n`)
    const log = (name: string) => readFile(join(folder, 'logs', String(rank), name), 'utf8')
    const [switches, line] = (await log('stdout.log')).split('\n')
    expect(switches).toBe('tabring switches: device=webgpu (launcher)')
    expect(JSON.parse(line)).toEqual(received[rank])
    expect(await log('stderr.log')).toBe('two\nlines\n')
  }
})

test('SIGINT ends every process that it started, with one line', async () => {
  await write('train.ts', "console.log('up')", 'await new Promise(() => undefined)')
  const run = start('run', ['--nproc-per-node=2', '--no-check', 'train.ts'])
  await says(run, '[0]: up')
  await says(run, '[1]: up')
  const all = await family(run.child.pid!)
  expect(all.length).toBeGreaterThan(3)
  run.child.kill('SIGINT')
  expect(await run.ended).toBe(130)
  expect(run.received.stderr).toBe('tabring: interrupted; every tab is closed\n')
  const left = await Promise.all(all.map(family))
  expect(left.flat()).toEqual([])
})
