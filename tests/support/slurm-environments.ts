import type { Variables } from '../../src/distributed/rendezvous/slurm.ts'

/** What Slurm sets for programs, by how they were started. No Slurm runs here: these are its documented variables. */

/** `srun -N2 -n8 --ntasks-per-node=4 -c 2 --gres=gpu:4 …`: one of 8 tasks. */
export const taskOf8 = (task: number): Variables => ({
  SLURM_JOB_ID: '4711',
  SLURM_JOB_NAME: 'mnist',
  SLURM_JOB_PARTITION: 'gpu',
  SLURM_JOB_NUM_NODES: '2',
  SLURM_JOB_NODELIST: 'alpha[07-08]',
  SLURM_NODELIST: 'alpha[07-08]',
  SLURM_NNODES: '2',
  SLURM_NTASKS: '8',
  SLURM_NPROCS: '8',
  SLURM_NTASKS_PER_NODE: '4',
  SLURM_TASKS_PER_NODE: '4(x2)',
  SLURM_CPUS_PER_TASK: '2',
  SLURM_GPUS_ON_NODE: '4',
  SLURM_JOB_GPUS: '0,1,2,3',
  SLURM_STEP_ID: '0',
  SLURM_STEP_NODELIST: 'alpha[07-08]',
  SLURM_STEP_NUM_NODES: '2',
  SLURM_STEP_NUM_TASKS: '8',
  SLURM_STEP_TASKS_PER_NODE: '4(x2)',
  SLURM_PROCID: String(task),
  SLURM_LOCALID: String(task % 4),
  SLURM_NODEID: String(Math.floor(task / 4)),
})

/** `srun -n16 --gres=gpu:8 --ntasks-per-node=8 …`, which takes two nodes: one of 16 tasks. */
export const taskOf16 = (task: number): Variables => ({
  SLURM_JOB_ID: '4716',
  SLURM_JOB_NODELIST: 'host-[9,8]',
  SLURM_NODELIST: 'host-[9,8]',
  SLURM_NNODES: '2',
  SLURM_NTASKS: '16',
  SLURM_NPROCS: '16',
  SLURM_NTASKS_PER_NODE: '8',
  SLURM_TASKS_PER_NODE: '8(x2)',
  SLURM_GPUS_ON_NODE: '8',
  SLURM_STEP_ID: '0',
  SLURM_STEP_NODELIST: 'host-[9,8]',
  SLURM_STEP_NUM_NODES: '2',
  SLURM_STEP_NUM_TASKS: '16',
  SLURM_STEP_TASKS_PER_NODE: '8(x2)',
  SLURM_PROCID: String(task),
  SLURM_LOCALID: String(task % 8),
  SLURM_NODEID: String(Math.floor(task / 8)),
})

/** `#SBATCH -N2 --ntasks-per-node=1 --gres=gpu:4`, then `srun …`: one task a node. */
export const taskPerNode = (node: number): Variables => ({
  SLURM_JOB_ID: '4712',
  SLURM_JOB_NAME: 'mnist',
  SLURM_JOB_PARTITION: 'gpu',
  SLURM_JOB_NODELIST: 'b5,alpha07',
  SLURM_NODELIST: 'b5,alpha07',
  SLURM_NNODES: '2',
  SLURM_NTASKS: '2',
  SLURM_NTASKS_PER_NODE: '1',
  SLURM_TASKS_PER_NODE: '1(x2)',
  SLURM_GPUS_ON_NODE: '4',
  SLURM_STEP_ID: '0',
  SLURM_STEP_NODELIST: 'b5,alpha07',
  SLURM_STEP_NUM_NODES: '2',
  SLURM_STEP_NUM_TASKS: '2',
  SLURM_STEP_TASKS_PER_NODE: '1(x2)',
  SLURM_PROCID: String(node),
  SLURM_LOCALID: '0',
  SLURM_NODEID: String(node),
})

/** `#SBATCH -N1 -n4`, and the program in the batch script itself, without srun: no step. */
export const scriptOnOneNode: Variables = {
  SLURM_JOB_ID: '4713',
  SLURM_JOB_NODELIST: 'alpha07',
  SLURM_NODELIST: 'alpha07',
  SLURM_NNODES: '1',
  SLURM_NTASKS: '4',
  SLURM_NPROCS: '4',
  SLURM_TASKS_PER_NODE: '4',
  SLURM_PROCID: '0',
  SLURM_LOCALID: '0',
  SLURM_NODEID: '0',
}

/** The same on four nodes: the batch script runs on the first alone. */
export const scriptOnFourNodes: Variables = {
  SLURM_JOB_ID: '200505',
  SLURM_JOB_NODELIST: 'gnode[10,20,25,37]',
  SLURM_NODELIST: 'gnode[10,20,25,37]',
  SLURM_NNODES: '4',
  SLURM_NTASKS: '4',
  SLURM_NPROCS: '4',
  SLURM_TASKS_PER_NODE: '1(x4)',
  SLURM_PROCID: '0',
  SLURM_LOCALID: '0',
  SLURM_NODEID: '0',
}

/** `srun -n 7` on three nodes of which the last takes one task. */
export const unevenTask = (task: number, node: number, local: number): Variables => ({
  SLURM_JOB_ID: '4714',
  SLURM_NODELIST: 'n[1-3]',
  SLURM_NTASKS: '7',
  SLURM_STEP_ID: '2',
  SLURM_STEP_NUM_TASKS: '7',
  SLURM_STEP_NODELIST: 'n[1-3]',
  SLURM_STEP_TASKS_PER_NODE: '3(x2),1',
  SLURM_PROCID: String(task),
  SLURM_NODEID: String(node),
  SLURM_LOCALID: String(local),
})

/** The shell of `salloc`, which is no task. */
export const allocationShell: Variables = {
  SLURM_JOB_ID: '4715',
  SLURM_JOB_NODELIST: 'n[1-2]',
  SLURM_NODELIST: 'n[1-2]',
  SLURM_NTASKS: '4',
}
