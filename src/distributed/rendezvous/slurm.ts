import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { checkRecord } from '../../util/options.ts'
import { env } from './env.ts'
import { expandNodeList } from './node-list.ts'

/** Variables by name, as `process.env` has them. */
export type Variables = Readonly<Record<string, string | undefined>>

/** Place of a task in a Slurm job, in the terms of torch.distributed. */
export interface SlurmRank {
  rank: number
  worldSize: number
  localRank: number
  nodeRank: number
  /** MASTER_ADDR, else the first node of the list. */
  masterAddr: string
  masterPort: number
}

/** What torchrun takes without `--master-port`. */
export const defaultMasterPort = 29_500

/**
 * Returns the rank of this task from Slurm's variables, for programs that `srun` starts once per rank.
 *
 * Reads SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_NODEID and the node list. Variables of the step (SLURM_STEP_NUM_TASKS,
 * SLURM_STEP_NODELIST) take precedence over those of the job. Without SLURM_LOCALID, the local rank is the rank modulo SLURM_NTASKS_PER_NODE;
 * without SLURM_NODEID, the node rank is the rank divided by it. MASTER_ADDR and MASTER_PORT take precedence if set.
 * `environment`: default `env`; in a tab, the variables that `tabring run` sets for this tab.
 * errors: `config.invalid`, naming the variable that is missing or not a number.
 */
export function rankFromSlurm(environment: Variables = env): SlurmRank {
  checkRecord('rankFromSlurm', 'environment', environment)
  const rank = wholeIn(environment, 'SLURM_PROCID')
  const worldSize = wholeIn(
    environment,
    ...(['SLURM_STEP_NUM_TASKS', 'SLURM_NTASKS', 'SLURM_NPROCS'] as const),
  )
  if (rank >= worldSize) {
    throw new TabringError(
      'config.invalid',
      `rankFromSlurm: SLURM_PROCID must be below the ${worldSize} tasks, got ${rank}. Start the program with srun.`,
    )
  }
  const hasPlace = has(environment, 'SLURM_LOCALID') && has(environment, 'SLURM_NODEID')
  const perNode = hasPlace ? 1 : wholeIn(environment, 'SLURM_NTASKS_PER_NODE')
  const masterAddr = has(environment, 'MASTER_ADDR')
    ? environment.MASTER_ADDR!
    : expandNodeList(nodeListIn(environment))[0]
  return {
    rank,
    worldSize,
    localRank: has(environment, 'SLURM_LOCALID')
      ? wholeIn(environment, 'SLURM_LOCALID')
      : rank % perNode,
    nodeRank: has(environment, 'SLURM_NODEID')
      ? wholeIn(environment, 'SLURM_NODEID')
      : Math.floor(rank / perNode),
    masterAddr,
    masterPort: has(environment, 'MASTER_PORT')
      ? wholeIn(environment, 'MASTER_PORT')
      : defaultMasterPort,
  }
}

const has = (environment: Variables, name: string): boolean =>
  name in environment && environment[name] !== undefined && environment[name] !== ''

/** The nodes of the step, else of the job, as Slurm writes them. errors: `config.invalid` when none is named. */
export function nodeListIn(environment: Variables): string {
  return textIn(environment, 'SLURM_STEP_NODELIST', 'SLURM_NODELIST', 'SLURM_JOB_NODELIST')
}

/** The first of `names` that is set. errors: `config.invalid` when none is. */
function textIn(environment: Variables, ...names: readonly string[]): string {
  const found = names.find((name) => has(environment, name))
  if (found !== undefined) return environment[found]!
  throw new TabringError(
    'config.invalid',
    `Slurm: ${names.join(' or ')} is not set. Start the program with srun in an allocation, or pass the environment.`,
  )
}

/** The first of `names` that is set, as a whole number. errors: `config.invalid`, naming the variable. */
export function wholeIn(environment: Variables, ...names: readonly string[]): number {
  const text = textIn(environment, ...names)
  if (/^\d{1,9}$/.test(text)) return Number(text)
  const name = names.find((one) => environment[one] === text && has(environment, one))
  throw new TabringError(
    'config.invalid',
    `Slurm: expected a whole number in ${name}, got "${clipped(text)}". Correct it, or let srun set it.`,
  )
}

/** As wholeIn; undefined when none is set. */
export function wholeIfSet(
  environment: Variables,
  ...names: readonly string[]
): number | undefined {
  return names.some((name) => has(environment, name)) ? wholeIn(environment, ...names) : undefined
}

/**
 * How many tasks each node has, from Slurm's short form: `4(x2),3` is [4, 4, 3].
 *
 * errors: `config.invalid` for another form.
 */
export function tasksPerNode(text: string): number[] {
  return text.split(',').flatMap((part) => {
    const form = /^(\d{1,6})(?:\(x(\d{1,6})\))?$/.exec(part.trim())
    if (!form) {
      throw new TabringError(
        'config.invalid',
        `Slurm: expected counts like 4(x2),3 in SLURM_TASKS_PER_NODE, got "${clipped(text)}". Correct it, or let srun set it.`,
      )
    }
    return Array.from({ length: Number(form[2] ?? 1) }, () => Number(form[1]))
  })
}
