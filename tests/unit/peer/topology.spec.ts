import { expect, test } from 'vitest'
import { machinesOf } from '../../../src/peer/room/topology.ts'
import { infoOf } from '../../support/member-info.ts'

const [here, there] = ['0'.repeat(32), '1'.repeat(32)]

test('members that ports join are on one machine, numbered as they come', () => {
  const members = [there, here, '', there, here, ''].map((hostTag) => infoOf('a', { hostTag }))
  expect(machinesOf(members)).toEqual([0, 1, 2, 0, 1, 3])
})

test('a member that asks for WebRTC counts as a separate machine', () => {
  const members = (['auto', 'webrtc', 'auto'] as const).map((transport) =>
    infoOf('a', { hostTag: here, transport }),
  )
  expect(machinesOf(members)).toEqual([0, 1, 0])
})
