import { readdir, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { freePort } from '../../support/free-port.ts'
import {
  folder,
  receivedByRank,
  start,
  useLauncherFolder,
  write,
} from '../../support/launcher-folder.ts'
import { repository } from '../../support/repository.ts'

/** `tabring run` as a process, on a user's own modules. tests/e2e/run-command.spec.ts has one launcher's tabs. */

useLauncherFolder()

test('launch gives the local rank; a rank that fails the first time is started again with all others', async () => {
  await write(
    'train.ts',
    "import { args, env } from 'tabring/distributed'",
    "console.log('start', env.RESTART_COUNT, env.ROOM_ID, args.join())",
    "if (env.RESTART_COUNT === '0') {",
    "  if (env.RANK === '0') Promise.reject(new Error('not awaited'))",
    '  await new Promise(() => undefined)',
    '}',
  )
  const run = start('launch', ['--nproc-per-node=2', '--max-restarts=1', 'train.ts', 'x'])
  expect(await run.ended, run.received.stderr).toBe(0)
  expect(run.received.stderr).toContain('tabring: rank 0 failed first: Error: not awaited\n')
  expect(run.received.stderr).toContain('tabring: restart 1 of 1\n')
  const rooms = [...run.received.stdout.matchAll(/start 1 (\S+)/g)].map(([, room]) => room)
  expect(rooms).toHaveLength(2)
  expect(new Set(rooms).size).toBe(1)
  expect(run.received.stdout).not.toContain(`start 0 ${rooms[0]}`)
  for (const rank of [0, 1]) {
    expect(run.received.stdout).toContain(`[${rank}]: start 1 ${rooms[0]} --local-rank=${rank},x\n`)
  }
})

test('a type error ends the run before a tab opens, unless --no-check runs it anyway', async () => {
  const compiler = join(folder, 'node_modules', 'typescript')
  await symlink(join(repository, 'node_modules', 'typescript'), compiler)
  onTestFinished(() => rm(compiler))
  await write('train.ts', "const x: number = 'text'", "console.log('ran with', x)")
  const checked = start('run', ['train.ts'])
  expect(await checked.ended).toBe(1)
  expect(checked.received.stderr).toBe(
    "tabring: module: a type error:\ntrain.ts:1:7: TS2322: Type 'string' is not assignable to type 'number'.\nCorrect the program, or run it anyway with --no-check.\n",
  )
  expect(checked.received.stdout).toBe('')
  const unchecked = start('run', ['--no-check', 'train.ts'])
  expect(await unchecked.ended, unchecked.received.stderr).toBe(0)
  expect(unchecked.received.stdout).toContain('[0]: ran with text\n')
})

describe('several launchers on this machine', () => {
  test('two runs at once use different ports and rooms', async () => {
    await write(
      'train.ts',
      "import { env } from 'tabring/distributed'",
      "import { meet } from './meet.ts'",
      'console.log(JSON.stringify({ met: (await meet()).join(), ...env }))',
    )
    const runs = [0, 1].map(() => start('run', ['--nproc-per-node=2', 'train.ts']))
    expect(await Promise.all(runs.map(({ ended }) => ended))).toEqual([0, 0])
    const [first, second] = runs.map(({ received }) => receivedByRank(received.stdout))
    for (const received of [first, second]) {
      expect(received.map(({ met }) => met)).toEqual(['0,1', '0,1'])
      expect(received[0].ROOM_ID).toBe(received[1].ROOM_ID)
    }
    expect(first[0].MASTER_PORT).not.toBe(second[0].MASTER_PORT)
    expect(first[0].ROOM_ID).not.toBe(second[0].ROOM_ID)
    expect(first[0].RUN_ID).not.toBe(second[0].RUN_ID)
  })

  test('two launchers with two tabs each make one run over HTTPS: one checkpoint is written, and both report a failure', async () => {
    await write(
      'train.ts',
      "import { getRngState, manualSeed } from 'tabring'; import { loadCheckpoint, saveCheckpoint } from 'tabring/checkpoint'; import * as dist from 'tabring/distributed'; import { destroyProcessGroup, env, initProcessGroup, openStore } from 'tabring/distributed'",
      'let puts = 0',
      'const plain = fetch',
      "globalThis.fetch = (url, init) => { if (init?.method === 'PUT') puts++; return plain(url, init) }",
      "await initProcessGroup({ backend: 'webrtc' })",
      'const met = await dist.allGatherObject(new Array(4), env.RANK)',
      'manualSeed(10 + Number(env.RANK))',
      'const saved = await saveCheckpoint({ step: 1 })',
      'manualSeed(99)',
      'await loadCheckpoint()',
      'const { seed } = getRngState()',
      'await destroyProcessGroup()',
      "const store = await openStore(env.MASTER_URL + '#key=' + env.ROOM_KEY)",
      'await store.set(env.RANK, env.NODE_RANK)',
      "await store.wait(['0', '1', '2', '3'])",
      'console.log(JSON.stringify({ ...env, met: met.join(), saved, puts, seed, hasFolder: env.CHECKPOINT_URL !== "" }))',
      "await store.set('said ' + env.RANK, '')",
      "await store.wait(['said 0', 'said 1', 'said 2', 'said 3'])",
      "if (env.RANK === '2') throw new Error('on machine ' + env.NODE_RANK)",
      'await new Promise(() => undefined)',
    )
    const key = { TABRING_ROOM_KEY: 'the-key-of-this-very-test' }
    const flags = [
      ...['--nnodes=2', '--nproc-per-node=2', '--master-addr=127.0.0.1'],
      `--master-port=${await freePort()}`,
    ]
    const runs = [1, 0].map((node) =>
      start(
        'run',
        [...flags, `--node-rank=${node}`, '--checkpoint-dir', `kept-${node}`, 'train.ts'],
        key,
      ),
    )
    expect(await Promise.all(runs.map(({ ended }) => ended))).toEqual([1, 1])
    const received = receivedByRank(runs[1].received.stdout + runs[0].received.stdout)
    expect(received, runs[1].received.stderr).toHaveLength(4)
    const numbers = received.map((one) => [one.RANK, one.NODE_RANK, one.LOCAL_RANK, one.met])
    expect(numbers).toEqual([
      ['0', '0', '0', '0,1,2,3'],
      ['1', '0', '1', '0,1,2,3'],
      ['2', '1', '0', '0,1,2,3'],
      ['3', '1', '1', '0,1,2,3'],
    ])
    // One file and its manifest, by global rank 0: not once a machine.
    expect(received.map(({ puts, hasFolder }) => [puts, hasFolder])).toEqual([
      [2, true],
      [0, true],
      [0, false],
      [0, false],
    ])
    // Each continues with the random state that it had.
    expect(received.map(({ seed }) => seed)).toEqual([10, 11, 12, 13])
    expect(received.map(({ saved }) => saved)).toEqual(Array(4).fill('step-1.safetensors'))
    const kept = await readdir(join(folder, 'kept-0'))
    expect(kept.sort()).toEqual(['checkpoints.json', 'step-1.safetensors'])
    expect(await readdir(folder)).not.toContain('kept-1')
    for (const { received } of runs) {
      expect(received.stderr).toMatch(
        /rank 2 on \S+ failed first:\nError: on machine 1\n {4}at train\.ts:19:/,
      )
      expect(received.stderr).not.toContain(key.TABRING_ROOM_KEY)
    }
  })

  test('two launchers with --relay, whose tabs have no WebRTC: their data goes through the first', async () => {
    await write(
      'train.ts',
      "import * as dist from 'tabring/distributed'; import { destroyProcessGroup, initProcessGroup } from 'tabring/distributed'",
      "Reflect.deleteProperty(globalThis, 'RTCPeerConnection')",
      'const group = await initProcessGroup()',
      'const sums = new Float32Array(300_007).fill(1 + group.rank)',
      'await dist.allReduce(sums)',
      'const links = [...group.stats().links.values()].map(({ kind }) => kind)',
      'console.log(JSON.stringify({ links: links.join(), areRight: sums.every((sum) => sum === 3) }))',
      'await destroyProcessGroup()',
    )
    const key = { TABRING_ROOM_KEY: 'the-key-of-this-very-test' }
    const flags = ['--nnodes=2', '--master-addr=127.0.0.1', `--master-port=${await freePort()}`]
    const runs = [1, 0].map((rank) =>
      start('run', [...flags, '--relay', `--node-rank=${rank}`, 'train.ts'], key),
    )
    const codes = await Promise.all(runs.map(({ ended }) => ended))
    expect(codes, runs.map(({ received }) => received.stderr).join()).toEqual([0, 0])
    const received = receivedByRank(runs[1].received.stdout + runs[0].received.stdout)
    expect(received).toEqual([0, 1].map(() => ({ links: 'relay', areRight: true })))
  })

  test('as srun starts them, once a rank and without flags: they find each other by a file', async () => {
    await write(
      'train.ts',
      "import { env, rankFromSlurm } from 'tabring/distributed'",
      "import { meet } from './meet.ts'",
      'console.log(JSON.stringify({ met: (await meet()).join(), ...rankFromSlurm(), id: env.RUN_ID }))',
    )
    const job = {
      SLURM_JOB_ID: '99',
      SLURM_NODELIST: 'localhost',
      SLURM_STEP_ID: '0',
      SLURM_STEP_NUM_TASKS: '2',
      SLURM_NTASKS: '2',
      SLURM_NODEID: '0',
    }
    const runs = [1, 0].map((task) =>
      start('run', ['train.ts'], { ...job, SLURM_PROCID: `${task}`, SLURM_LOCALID: `${task}` }),
    )
    const codes = await Promise.all(runs.map(({ ended }) => ended))
    expect(codes, runs.map(({ received }) => received.stderr).join()).toEqual([0, 0])
    const received = receivedByRank(runs[1].received.stdout + runs[0].received.stdout)
    for (const rank of [0, 1]) {
      expect(received[rank]).toMatchObject({
        met: '0,1',
        rank,
        worldSize: 2,
        localRank: rank,
        nodeRank: 0,
        masterAddr: 'localhost',
        id: '99',
      })
    }
    expect(await readdir(join(folder, '.tabring', 'runs'))).toEqual([])
  })
})
