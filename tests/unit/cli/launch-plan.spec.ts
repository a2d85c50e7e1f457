import { describe, expect, test } from 'vitest'
import { Leader } from '../../../node/launch/coordination/leader.ts'
import type { LauncherMember, Part } from '../../../node/launch/coordination/messages.ts'
import { parseLaunch, type RankOptions } from '../../../node/launch/options.ts'
import { notesOnFlags, type Plan, planLaunch } from '../../../node/launch/plan.ts'
import { readSlurmJob, slurmVariables } from '../../../node/launch/slurm-job.ts'
import { Restarts } from '../../../node/restarts.ts'
import { parseOptions } from '../../../node/train/options.ts'
import { rankFromSlurm, type Variables } from '../../../src/distributed/rendezvous/slurm.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import {
  allocationShell,
  scriptOnFourNodes,
  scriptOnOneNode,
  taskOf8,
  taskOf16,
  taskPerNode,
  unevenTask,
} from '../../support/slurm-environments.ts'

/** What a launcher does where it was started: by flags, and by what Slurm sets. */

function plan(line: string, environment: Variables = {}): Plan {
  const parsed = parseLaunch('run', line.split(' '), environment)
  if (parsed.kind === 'help') throw new Error('help')
  return planOf(parsed.options, environment)
}

function planOf(options: RankOptions, environment: Variables): Plan {
  return planLaunch(options, {
    environment,
    hostName: 'here',
    homeFolder: '/home/me',
    randomName: () => 'random',
  })
}

describe('by flags', () => {
  test.each<[string, Partial<Plan>]>([
    [
      'train.ts',
      {
        role: 'alone',
        tabs: 1,
        masterAddr: '127.0.0.1',
        masterPort: 29500,
        isPortFixed: false,
        runId: 'random',
      },
    ],
    ['--master-port 1234 train.ts', { role: 'alone', masterPort: 1234, isPortFixed: true }],
    ['--standalone --master-port 1234 train.ts', { masterPort: 29500, isPortFixed: false }],
    [
      '--nnodes 2 --node-rank 0 train.ts',
      {
        role: 'leader',
        index: 0,
        launchers: 2,
        masterAddr: 'here',
        isPortFixed: true,
        runId: 'none',
      },
    ],
    [
      '--nnodes 2 --node-rank 1 --master-addr alpha --rdzv-id seven train.ts',
      { role: 'member', index: 1, masterAddr: 'alpha', runId: 'seven' },
    ],
    [
      '--nnodes 3 --rdzv-endpoint alpha:99 train.ts',
      { role: 'either', index: null, masterAddr: 'alpha', masterPort: 99 },
    ],
    ['--master-port 0 train.ts', { role: 'alone', masterPort: 0, isPortFixed: false }],
    ['--rdzv-endpoint localhost:0 train.ts', { role: 'alone', masterPort: 0, isPortFixed: false }],
    [
      '--nnodes 2 --node-rank 0 --master-port 0 train.ts',
      { role: 'leader', masterPort: 0, isPortFixed: false },
    ],
    ['--nnodes 2 --node-rank 1 --master-addr ::1 train.ts', { role: 'member', masterAddr: '::1' }],
    ['--nproc-per-node 4 --gres gpu:2 train.ts', { tabs: 2, maxTabs: 2 }],
    ['--nproc-per-node auto --gres gpu:2 train.ts', { tabs: 'auto', maxTabs: 2 }],
    ['--ntasks-per-node 3 train.ts', { tabs: 3 }],
    ['--elastic 1:3 train.ts', { tabs: 3, launchers: 1 }],
    ['--elastic 1:3 --gres gpu:2 train.ts', { tabs: 2 }],
  ])('%s', (line, expected) => {
    expect(plan(line)).toMatchObject(expected)
  })

  test('another machine needs the address', () => {
    expect(() => plan('--node-rank 1 train.ts')).toThrow('--node-rank: a run of one machine')
    expect(() => plan('--nnodes 2 --node-rank 1 train.ts')).toThrow(
      '--master-addr: the address of machine 0 is missing',
    )
  })

  test.each([
    [
      '--elastic 1:3 --nnodes 2 --node-rank 0 train.ts',
      'works with one launcher, and this run has up to 2',
    ],
    ['--elastic 3:4 --gres gpu:2 train.ts', 'expected MIN of at most 2'],
  ])('an elastic run fits one machine: %s', (line, text) => {
    expect(() => plan(line)).toThrow(`--elastic: ${text}`)
  })

  test('port 0 is refused where other machines need to know the port', () => {
    expect(() => plan('--nnodes 2 --node-rank 1 --master-addr a --master-port 0 train.ts')).toThrow(
      '--master-port: expected the port of machine 0, got 0',
    )
    expect(() => plan('--nnodes 2 --rdzv-endpoint a:0 train.ts')).toThrow('got 0, which means any')
    expect(plan('--nnodes 2 --rdzv-endpoint a:0 --rdzv-conf file=f train.ts').role).toBe('either')
  })

  test('flags of Slurm are confirmed in notes', () => {
    const line =
      '--nproc-per-node 4 -p fast --job-name mnist --cpus-per-task 2 --gres gpu:3 train.ts'
    expect(plan(line).notes).toEqual([
      'job mnist, partition fast, at most 2 workers per tab, at most 3 tabs per machine',
      '4 tabs requested on this machine, but gpu:3 allows 3: opening 3',
    ])
    expect(plan('train.ts').notes).toEqual([])
  })
})

describe('in a Slurm job, without a flag', () => {
  test('srun -n 8 on two nodes: one tab each, ranks as Slurm numbers them', () => {
    const all = Array.from({ length: 8 }, (_, task) => plan('train.ts', taskOf8(task)))
    expect(all.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    expect(all.map(({ role }) => role)).toEqual(['leader', ...Array(7).fill('member')])
    expect(all[6]).toMatchObject({
      launchers: 8,
      tabs: 1,
      place: { nodeRank: 1, localRank: 2, localWorldSize: 4 },
      masterAddr: 'alpha07',
      isPortFixed: false,
      runId: '4711',
      rendezvousFile: '/home/me/.tabring/runs/slurm-4711.0.0.json',
    })
    expect(all[6].maxTabs).toBeUndefined()
    expect(all.flatMap(({ notes }) => notes)).toEqual([
      'job mnist (4711), partition gpu, node 0 of 2, task 0 of 8, at most 2 workers per tab',
    ])
  })

  test('one task a node: a tab for each GPU', () => {
    expect(plan('train.ts', taskPerNode(0))).toMatchObject({
      role: 'leader',
      launchers: 2,
      index: 0,
      tabs: 4,
      maxTabs: 4,
      place: null,
      masterAddr: 'b5',
    })
    expect(plan('train.ts', taskPerNode(1))).toMatchObject({ role: 'member', index: 1 })
    expect(plan('--nproc-per-node 2 train.ts', taskPerNode(1)).tabs).toBe(2)
    expect(plan('--nproc-per-node 8 train.ts', taskPerNode(1)).tabs).toBe(4)
    expect(plan('train.ts', { ...taskPerNode(0), SLURM_GPUS_ON_NODE: undefined }).tabs).toBe(1)
    const listed = { ...taskPerNode(0), SLURM_GPUS_ON_NODE: undefined, SLURM_JOB_GPUS: '0,3' }
    expect(plan('train.ts', listed).tabs).toBe(2)
  })

  test('tasks that do not divide by the nodes', () => {
    const last = plan('train.ts', unevenTask(6, 2, 0))
    expect(last).toMatchObject({
      launchers: 7,
      index: 6,
      place: { nodeRank: 2, localRank: 0, localWorldSize: 1 },
      rendezvousFile: '/home/me/.tabring/runs/slurm-4714.2.0.json',
    })
    expect(plan('train.ts', unevenTask(4, 1, 1)).place?.localWorldSize).toBe(3)
  })

  test('the batch script of one node: all tasks are its tabs', () => {
    expect(plan('train.ts', scriptOnOneNode)).toMatchObject({
      role: 'alone',
      launchers: 1,
      tabs: 4,
      masterAddr: '127.0.0.1',
      runId: '4713',
    })
  })

  test('the batch script of several nodes is refused', () => {
    expect(() => plan('train.ts', scriptOnFourNodes)).toThrow(
      'expected a launcher on each of the 4 nodes, got one, started by the batch script on gnode10. Start it with srun',
    )
  })

  test.each([
    ['the interactive step of salloc is no job', 4_294_967_290, null],
    ['the batch script is no task of srun', 4_294_967_291, 'script'],
  ] as const)('%s, with any step id', (_, step, startedPer) => {
    const environment = { ...scriptOnOneNode, SLURM_STEP_ID: String(step) }
    expect(readSlurmJob(environment)?.startedPer ?? null).toBe(startedPer)
  })

  test('the shell of salloc, and --standalone, are no Slurm job', () => {
    expect(plan('train.ts', allocationShell)).toMatchObject({ role: 'alone', tabs: 1, job: null })
    expect(plan('--standalone train.ts', taskOf8(5))).toMatchObject({ role: 'alone', job: null })
  })

  test('each launcher opens one tab when srun starts one for each task', () => {
    expect(() => plan('--nproc-per-node 2 train.ts', taskOf8(0))).toThrow(
      'srun has started 4 launchers on this node, each for one tab, got 2',
    )
    expect(plan('--nproc-per-node 4 train.ts', taskOf8(0)).tabs).toBe(1)
  })

  test('npm run train has the plan of tabring run, by its own name', () => {
    const trained = (environment: Variables) => {
      const parsed = parseOptions([], environment)
      if (parsed.kind === 'help') throw new Error('help')
      return planOf(parsed.options, environment)
    }
    for (const environment of [taskPerNode(0), taskPerNode(1), taskOf8(5), scriptOnOneNode])
      expect(trained(environment)).toEqual(plan('train.ts', environment))
    expect(() => trained(scriptOnFourNodes)).toThrow('--ntasks-per-node=1 npm run train -- …')
    // Alone, it leaves the port of runs on several machines to them.
    expect(trained({})).toMatchObject({ role: 'alone', masterPort: 0, isPortFixed: false })
  })

  test("flags override Slurm's variables", () => {
    const line = '--master-addr beta --master-port 7777 --rdzv-id mine train.ts'
    expect(plan(line, taskPerNode(1))).toMatchObject({
      masterAddr: 'beta',
      masterPort: 7777,
      isPortFixed: true,
      runId: 'mine',
    })
  })

  test('with a key for all there is no file, and the port is the known one', () => {
    const environment = { ...taskPerNode(1), TABRING_ROOM_KEY: '0123456789abcdef' }
    const found = plan('train.ts', environment)
    expect(found.rendezvousFile).toBeUndefined()
    expect(found).toMatchObject({ masterPort: 29500, isPortFixed: true })
  })
})

/** Which ranks each of the launchers has, when all have come in the reverse order. */
function partsOf(plans: readonly Plan[]): Part[] {
  const leader = new Leader({
    env: new VirtualEnv(),
    launchers: plans[0].launchers,
    restarts: new Restarts(0),
    isKilling: true,
    maxRanks: 64,
    joinTimeoutMs: 1000,
    log: () => undefined,
  })
  const parts: Part[] = []
  for (const { index, tabs, place, launchers } of plans.toReversed()) {
    const member: LauncherMember = { index, name: 'host', tabs: Number(tabs), place }
    leader.join(member, launchers, (order) => {
      if (order.type === 'start') parts[index!] = order.part
    })
  }
  return parts
}

test('16 ranks on two machines, by srun -n16 or by flags: the same ranks and local ranks', () => {
  const bySlurm = partsOf(Array.from({ length: 16 }, (_, i) => plan('train.ts', taskOf16(i))))
  const ranks = Array.from({ length: 16 }, (_, rank) => rank)
  const wanted = ranks.map((rank) => [rank, rank % 8, Math.floor(rank / 8), 16, 8])
  expect(
    bySlurm.map((part) => [
      ...[part.firstRank, part.localRank, part.nodeRank],
      ...[part.worldSize, part.localWorldSize],
    ]),
  ).toEqual(wanted)
  const flags = '--nnodes 2 --nproc-per-node 8 --master-addr host-9'
  const byFlags = partsOf([0, 1].map((node) => plan(`${flags} --node-rank ${node} train.ts`)))
  expect(
    byFlags.flatMap(({ firstRank, nodeRank, worldSize, localWorldSize }) =>
      Array.from({ length: 8 }, (_, i) => [firstRank + i, i, nodeRank, worldSize, localWorldSize]),
    ),
  ).toEqual(wanted)
})

test("each tab's variables are those of a Slurm task of its rank", () => {
  const place = { rank: 5, worldSize: 8, localRank: 1, nodeRank: 1 }
  const variables = slurmVariables({ ...taskPerNode(1), HOME: '/home/me' }, place)
  expect(rankFromSlurm(variables)).toEqual({ ...place, masterAddr: 'b5', masterPort: 29500 })
  expect(variables.SLURM_JOB_ID).toBe('4712')
  expect(variables.HOME).toBeUndefined()
  const own = { SLURM_JWT: 'secret', SLURM_TASK_PID: '9', SLURM_ARRAY_TASK_ID: '3' }
  const kept = slurmVariables({ ...taskOf8(0), ...own }, place)
  expect(Object.keys(kept).filter((name) => /JWT|TASKS|PID|NPROCS/.test(name))).toEqual([
    'SLURM_NTASKS',
  ])
  expect(kept).toMatchObject({ SLURM_ARRAY_TASK_ID: '3', SLURM_STEP_NODELIST: 'alpha[07-08]' })
})

test.each<[line: string, environment: Variables, notes: string[]]>([
  [
    '--nproc-per-node 2 --tee 0:3,7:1 train.ts',
    {},
    ['--tee: this machine has no local rank 7. Local ranks are numbered from 0, and it has 2.'],
  ],
  [
    '--redirects 1:1,2:3 train.ts',
    {},
    [
      '--redirects: this machine has no local ranks 1 and 2. Local ranks are numbered from 0, and it has 1.',
    ],
  ],
  ['--nproc-per-node 2 --tee 0:3,1:1 --redirects 1 --relay train.ts', {}, []],
  ['--tee 3:1 train.ts', taskOf8(0), []],
  ['--tee 9:1 train.ts', taskOf8(1), []],
  [
    '--relay train.ts',
    {},
    ['--relay: changes nothing in a run of one rank, which sends to nobody.'],
  ],
  ['--nnodes 2 --node-rank 0 --relay train.ts', {}, []],
  [
    '--rdzv-endpoint nonsense train.ts',
    {},
    [
      '--rdzv-endpoint: a run of one machine meets no other at nonsense. Pass --nnodes for several machines.',
    ],
  ],
  ['--rdzv-endpoint localhost:29400 train.ts', {}, []],
  ['--nnodes 2 --rdzv-endpoint other:29400 --node-rank 1 train.ts', {}, []],
])('flags without effect are noted: %s', (line, environment, notes) => {
  const parsed = parseLaunch('run', line.split(' '), environment)
  if (parsed.kind === 'help') throw new Error('help')
  const planned = plan(line, environment)
  expect(notesOnFlags(parsed.options, planned, Number(planned.tabs))).toEqual(notes)
})

test('a broken variable is named', () => {
  expect(() => readSlurmJob({ ...taskOf8(0), SLURM_STEP_TASKS_PER_NODE: 'many' })).toThrow(
    'expected counts like 4(x2),3',
  )
  expect(() => readSlurmJob({ ...taskOf8(0), SLURM_STEP_NODELIST: 'a[1' })).toThrow('character 2')
})
