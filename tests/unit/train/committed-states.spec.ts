import { expect, test } from 'vitest'
import { CommittedStates } from '../../../src/ddp/committed/committed-states.ts'
import { longestAnnounced } from '../../../src/peer/group/announced-length.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

interface State {
  readonly step: number
  readonly bytes: Uint8Array<ArrayBuffer>
}

const statesOf = (maxBytes?: number, max = 1) =>
  new CommittedStates<State>({
    ...{ label: 'the state', max, ...(maxBytes !== undefined && { maxBytes }) },
    stepOf: ({ step }) => step,
    pack: ({ bytes }) => bytes,
    unpack: (bytes, step) => ({ step, bytes }),
  })

/** Two ranks, of which the first has a state of 100 bytes. */
async function synchronize(maxBytes?: number): Promise<(State | undefined)[]> {
  const world = new VirtualEnv(1)
  const groups = memoryMesh(world, 2)
  const states = groups.map(() => statesOf(maxBytes))
  states[0]!.add({ step: 7, bytes: new Uint8Array(100).fill(3) })
  const held = states.map((own) => own.held())
  const ends = groups.map((group, rank) => states[rank]!.synchronize(group, held))
  await world.until(Promise.all(ends))
  return states.map(({ newest }) => newest)
}

test('the newest states of different steps are held, each step once', () => {
  const states = statesOf(undefined, 2)
  const stateOf = (step: number, byte: number) => ({ step, bytes: Uint8Array.of(byte) })
  for (const [step, byte] of [
    [1, 1],
    [2, 2],
    [2, 3],
  ])
    states.add(stateOf(step, byte))
  const held = () => states.held(({ bytes }) => `${bytes}`)
  expect(held()).toEqual([
    { step: 2, hash: '3' },
    { step: 1, hash: '1' },
  ])
  states.add(stateOf(3, 4))
  expect(held().map(({ step }) => step)).toEqual([3, 2])
  states.backTo(2)
  expect(held()).toEqual([{ step: 2, hash: '3' }])
})

test('a state comes to the rank that lacks it', async () => {
  const [has, got] = await synchronize()
  expect(got).toEqual(has)
})

test('a state above the bound of its kind is refused before anything is allocated for it', async () => {
  await expect(synchronize(99)).rejects.toThrow(
    'the state: each rank may send at most 99 bytes, but rank 0 announced 100.',
  )
})

test('a length that another rank announces is bounded by 1 GiB, or as the caller says', () => {
  const group = { size: 2, ranks: [0, 1], abort: () => undefined }
  const lengths = Uint32Array.of(2 ** 30 + 1)
  expect(() => longestAnnounced('here', group, lengths, { slots: 1 })).toThrow('at most 1073741824')
  expect(longestAnnounced('here', group, lengths, { slots: 1, maxBytes: 2 ** 32 })).toBe(lengths[0])
})
