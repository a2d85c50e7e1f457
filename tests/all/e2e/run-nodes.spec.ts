import { expect, test } from 'vitest'
import { freePort } from '../../support/free-port.ts'
import {
  folder,
  receivedByRank,
  start,
  useLauncherFolder,
  write,
} from '../../support/launcher-folder.ts'
import { says } from '../../support/launcher-process.ts'

/** `tabring run --nnodes MIN:MAX` as processes, of which one is killed and comes again. */

useLauncherFolder()

test('--nnodes 1:2: without a launcher that is killed the other starts again alone, and again with it when it is back', async () => {
  await write(
    'train.ts',
    "import * as dist from 'tabring/distributed'; import { destroyProcessGroup, env, initProcessGroup } from 'tabring/distributed'",
    "await initProcessGroup({ backend: 'webrtc' })",
    'const met = await dist.allGatherObject(new Array(Number(env.WORLD_SIZE)), env.NODE_RANK)',
    'console.log(JSON.stringify({ start: env.RESTART_COUNT, met: met.join() }))',
    "if (env.RESTART_COUNT !== '2') await new Promise(() => undefined)",
    'await destroyProcessGroup()',
  )
  // What a killed launcher has built stays: in the test's own folder.
  const environment = { TABRING_ROOM_KEY: 'the-key-of-this-very-test', TMPDIR: folder }
  const port = await freePort()
  const flags = ['--nnodes=1:2', '--max-restarts=1', '--rdzv-conf=last_call_timeout=300']
  const launcher = (node: number) =>
    start(
      'run',
      [
        ...flags,
        '--master-addr=127.0.0.1',
        `--master-port=${port}`,
        `--node-rank=${node}`,
        'train.ts',
      ],
      environment,
    )
  const first = launcher(0)
  const second = launcher(1)
  await Promise.all([first, second].map((one) => says(one, '"start":"0","met":"0,1"')))
  second.child.kill('SIGKILL')
  await says(first, '"start":"1","met":"0"')
  const again = launcher(1)
  expect(await Promise.all([first.ended, again.ended]), first.received.stderr).toEqual([0, 0])
  expect(
    receivedByRank(first.received.stdout + again.received.stdout).map(({ met }) => met),
  ).toContain('0,1')
  expect(again.received.stdout).toContain('"start":"2","met":"0,1"')
  expect(first.received.stderr).toMatch(
    /the launcher on \S+ ended before the run did \(.*\)\. Check its output\.\n.*restart 1 of 1\n.* joins: all ranks start again\n/,
  )
}, 240_000)
