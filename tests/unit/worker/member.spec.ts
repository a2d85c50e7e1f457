import { expect, it } from 'vitest'
import { experiments } from '../../../demos/experiments.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { RoomMember } from '../../../src/worker/page/member.ts'

/** A member without a browser: its worker is a port on which nobody answers. */
function newMember(): RoomMember {
  const { port1 } = new MessageChannel()
  return new RoomMember({
    experiments,
    startWorker: () => port1 as unknown as Worker,
    link: newRoomLink(),
    name: 'tab',
    transport: 'auto',
    mode: 'create',
  })
}

it('start works after one that was refused for its settings', () => {
  const member = newMember()
  expect(() => member.start({ exact: true, tune: true })).toThrow('tune: not available with exact')
  // It gets as far as the server, of which there is none here.
  expect(() => member.start({ exact: true })).toThrow('not joined yet')
})
