import { describe, expect, test } from 'vitest'
import { rankFromSlurm, tasksPerNode } from '../../../src/distributed/rendezvous/slurm.ts'
import { taskOf8, taskPerNode, unevenTask } from '../../support/slurm-environments.ts'

describe('rankFromSlurm', () => {
  test('eight tasks on two nodes', () => {
    const all = Array.from({ length: 8 }, (_, task) => rankFromSlurm(taskOf8(task)))
    expect(all.map(({ rank }) => rank)).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    expect(all.map(({ localRank }) => localRank)).toEqual([0, 1, 2, 3, 0, 1, 2, 3])
    expect(all.map(({ nodeRank }) => nodeRank)).toEqual([0, 0, 0, 0, 1, 1, 1, 1])
    for (const { worldSize, masterAddr, masterPort } of all) {
      expect([worldSize, masterAddr, masterPort]).toEqual([8, 'alpha07', 29500])
    }
  })

  test('the first node is the first of the list, not of the alphabet', () => {
    expect(rankFromSlurm(taskPerNode(1))).toEqual({
      rank: 1,
      worldSize: 2,
      localRank: 0,
      nodeRank: 1,
      masterAddr: 'b5',
      masterPort: 29500,
    })
  })

  test("a step's own numbers go before the job's", () => {
    const step = {
      ...taskPerNode(0),
      SLURM_NTASKS: '64',
      SLURM_NODELIST: 'other[1-9]',
    }
    expect(rankFromSlurm(step)).toMatchObject({ worldSize: 2, masterAddr: 'b5' })
  })

  test('with the variables that tutorials use alone', () => {
    const few = { SLURM_PROCID: '13', SLURM_NTASKS: '16', SLURM_NODELIST: 'a[1-2]' }
    expect(rankFromSlurm({ ...few, SLURM_NTASKS_PER_NODE: '8' })).toEqual({
      rank: 13,
      worldSize: 16,
      localRank: 5,
      nodeRank: 1,
      masterAddr: 'a1',
      masterPort: 29500,
    })
    expect(() => rankFromSlurm(few)).toThrow('SLURM_NTASKS_PER_NODE is not set')
  })

  test('an address and a port that are set win', () => {
    const given = { ...taskOf8(3), MASTER_ADDR: 'beta', MASTER_PORT: '12345' }
    expect(rankFromSlurm(given)).toMatchObject({ masterAddr: 'beta', masterPort: 12345 })
  })

  test.each<[string, Record<string, string | undefined>, string]>([
    ['no task', { SLURM_PROCID: undefined }, 'SLURM_PROCID is not set'],
    ['an empty one', { SLURM_PROCID: '' }, 'SLURM_PROCID is not set'],
    ['no number', { SLURM_PROCID: 'x' }, 'expected a whole number in SLURM_PROCID, got "x"'],
    ['a rank too high', { SLURM_PROCID: '8' }, 'SLURM_PROCID must be below the 8 tasks, got 8'],
    [
      'a port that is none',
      { MASTER_PORT: '1e3' },
      'expected a whole number in MASTER_PORT, got "1e3"',
    ],
  ])('%s is an error', (_, change, text) => {
    expect(() => rankFromSlurm({ ...taskOf8(0), ...change })).toThrow(text)
  })

  test('outside of Slurm the error says how to start', () => {
    expect(() => rankFromSlurm({})).toThrow('Start the program with srun')
  })
})

test('the short form of tasks per node', () => {
  expect(tasksPerNode('4(x2),3')).toEqual([4, 4, 3])
  expect(tasksPerNode('1')).toEqual([1])
  expect(tasksPerNode(unevenTask(0, 0, 0).SLURM_STEP_TASKS_PER_NODE!)).toEqual([3, 3, 1])
  expect(() => tasksPerNode('4x2')).toThrow('expected counts like 4(x2),3')
})
