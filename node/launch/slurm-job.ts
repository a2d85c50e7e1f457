import { expandNodeList } from '../../src/distributed/node-list.ts'
import {
  nodeListIn,
  tasksPerNode,
  type Variables,
  wholeIfSet,
  wholeIn,
} from '../../src/distributed/slurm.ts'
import { TabringError } from '../../src/util/errors.ts'

/** Where a launcher is in a Slurm job. */
export interface SlurmJob {
  id: string
  /** Job, step and requeue: what no two runs have in common. */
  runName: string
  name?: string
  partition?: string
  /** Host names, in Slurm's order. */
  nodes: string[]
  /** This launcher's. */
  nodeRank: number
  task: number
  tasks: number
  /** Its place among the tasks of its node. */
  localTask: number
  tasksHere: number
  /** `node`: one launcher a node; `task`: srun started one a rank; `script`: the batch script started one, on the first node. */
  startedPer: 'node' | 'task' | 'script'
  cpusPerTask?: number
  gpusHere?: number
}

/**
 * Reads where Slurm has started this launcher; null outside of a job, and in the shell of `salloc`, which is no task.
 *
 * A batch script is told from a task of srun by SLURM_STEP_ID, which srun alone sets.
 * errors: `config.invalid`, naming the variable.
 */
export function readSlurmJob(environment: Variables): SlurmJob | null {
  if (!environment.SLURM_PROCID || !environment.SLURM_JOB_ID) return null
  const task = wholeIn(environment, 'SLURM_PROCID')
  const isStep = Boolean(environment.SLURM_STEP_ID) || task > 0
  const id = environment.SLURM_JOB_ID
  const nodes = expandNodeList(nodeListIn(environment))
  const nodeRank = wholeIfSet(environment, 'SLURM_NODEID') ?? 0
  const perNode = wholeIfSet(environment, 'SLURM_NTASKS_PER_NODE')
  const tasks =
    wholeIfSet(environment, 'SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS', 'SLURM_NPROCS') ??
    (perNode ?? 1) * nodes.length
  const counts =
    environment.SLURM_STEP_TASKS_PER_NODE ||
    // Of the job: other than the step's where srun has flags of its own.
    (environment.SLURM_STEP_NUM_TASKS ? '' : environment.SLURM_TASKS_PER_NODE)
  const tasksHere =
    (counts ? tasksPerNode(counts)[nodeRank] : undefined) ??
    (perNode !== undefined && perNode * nodes.length === tasks
      ? perNode
      : Math.ceil(tasks / nodes.length))
  const gpuList = environment.SLURM_JOB_GPUS
  return {
    id,
    runName: [
      `slurm-${id}`,
      environment.SLURM_STEP_ID ?? 'script',
      environment.SLURM_RESTART_COUNT ?? '0',
    ].join('.'),
    name: environment.SLURM_JOB_NAME || undefined,
    partition: environment.SLURM_JOB_PARTITION || undefined,
    nodes,
    nodeRank,
    task,
    tasks,
    localTask: wholeIfSet(environment, 'SLURM_LOCALID') ?? task % tasksHere,
    tasksHere,
    startedPer: !isStep ? 'script' : tasks > nodes.length ? 'task' : 'node',
    cpusPerTask: wholeIfSet(environment, 'SLURM_CPUS_PER_TASK'),
    gpusHere:
      wholeIfSet(environment, 'SLURM_GPUS_ON_NODE') ??
      (gpuList ? gpuList.split(',').length : undefined),
  }
}

/** The variables of one tab, as its own task would have them: for `initFromSlurm` in the tab. */
export function slurmVariables(
  environment: Variables,
  {
    rank,
    worldSize,
    localRank,
    nodeRank,
  }: Record<'rank' | 'worldSize' | 'localRank' | 'nodeRank', number>,
): Record<string, string> {
  const kept = Object.entries(environment).filter(
    (entry): entry is [string, string] => /^SLURM_/.test(entry[0]) && entry[1] !== undefined,
  )
  return {
    ...Object.fromEntries(kept.filter(([name]) => !isOfTask(name))),
    SLURM_PROCID: String(rank),
    SLURM_NTASKS: String(worldSize),
    SLURM_LOCALID: String(localRank),
    SLURM_NODEID: String(nodeRank),
  }
}

/** Variables that say how many tasks Slurm started, which is not how many tabs there are. */
const isOfTask = (name: string) => /TASKS|NPROCS|GTIDS|TASK_PID/.test(name)

/** errors: `config.invalid` for a job of several nodes whose launcher was started in the batch script, where it would be alone. */
export function refuseScript({ startedPer, nodes }: SlurmJob): void {
  if (startedPer !== 'script' || nodes.length === 1) return
  throw new TabringError(
    'config.invalid',
    `Slurm: expected a launcher on each of the ${nodes.length} nodes, got one, started by the batch script on ${nodes[0]}. Put srun before it: srun --ntasks-per-node=1 tabring run …`,
  )
}
