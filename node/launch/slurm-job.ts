import { expandNodeList } from '../../src/distributed/rendezvous/node-list.ts'
import {
  nodeListIn,
  tasksPerNode,
  type Variables,
  wholeIfSet,
  wholeIn,
} from '../../src/distributed/rendezvous/slurm.ts'
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

/** SLURM_STEP_ID from here on is no step of srun's but the batch script and such (slurm.h: SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT, …). */
const firstSpecialStep = 0xffff_fff0
/** SLURM_INTERACTIVE_STEP: the shell of `salloc` where the cluster has use_interactive_step. */
const interactiveStep = 0xffff_fffa

/**
 * Reads where Slurm has started this launcher; null outside of a job, and in the shell of `salloc`, which is no task.
 *
 * SLURM_STEP_ID, which srun alone sets, distinguishes a task of srun from a batch script.
 * errors: `config.invalid`, naming the variable.
 */
export function readSlurmJob(environment: Variables): SlurmJob | null {
  const { SLURM_PROCID, SLURM_JOB_ID, SLURM_STEP_ID } = environment
  if (!SLURM_PROCID || !SLURM_JOB_ID || Number(SLURM_STEP_ID) === interactiveStep) return null
  const task = wholeIn(environment, 'SLURM_PROCID')
  const isStep = task > 0 || (Boolean(SLURM_STEP_ID) && Number(SLURM_STEP_ID) < firstSpecialStep)
  const id = SLURM_JOB_ID
  const nodes = expandNodeList(nodeListIn(environment))
  const nodeRank = wholeIfSet(environment, 'SLURM_NODEID') ?? 0
  const perNode = wholeIfSet(environment, 'SLURM_NTASKS_PER_NODE')
  const tasks =
    wholeIfSet(environment, 'SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS', 'SLURM_NPROCS') ??
    (perNode ?? 1) * nodes.length
  const counts =
    environment.SLURM_STEP_TASKS_PER_NODE ||
    // Of the job: other than the step's where srun has other flags.
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

/** The variables of one tab, as its own task would have them: for `rankFromSlurm` in the tab. */
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
    (entry): entry is [string, string] => isForPrograms(entry[0]) && entry[1] !== undefined,
  )
  return {
    ...Object.fromEntries(kept),
    SLURM_PROCID: String(rank),
    SLURM_NTASKS: String(worldSize),
    SLURM_LOCALID: String(localRank),
    SLURM_NODEID: String(nodeRank),
  }
}

/**
 * Variables that tabs may have: what job it is and where. Not those that say how many tasks Slurm started, which is not how many tabs there are, and
 * none that is secret (SLURM_JWT).
 */
const isForPrograms = (name: string) =>
  /^SLURM_(CLUSTER_NAME|CPUS_ON_NODE|CPUS_PER_TASK|GPUS\w*|NNODES|NODELIST|NODEID|RESTART_COUNT|JOBID|STEPID|SUBMIT_DIR|SUBMIT_HOST|LAUNCH_NODE_IPADDR|SRUN_COMM_HOST|TOPOLOGY_ADDR)$/.test(
    name,
  ) || /^SLURM_(JOB|ARRAY|STEP)_(?!\w*(TASKS|TASK_PID))\w+$/.test(name)

/** errors: `config.invalid` for a job of several nodes whose launcher was started in the batch script, where it would be alone. */
export function refuseScript({ startedPer, nodes }: SlurmJob, command: string): void {
  if (startedPer !== 'script' || nodes.length === 1) return
  throw new TabringError(
    'config.invalid',
    `Slurm: expected a launcher on each of the ${nodes.length} nodes, got one, started by the batch script on ${nodes[0]}. Start it with srun: srun --ntasks-per-node=1 ${command} …`,
  )
}
