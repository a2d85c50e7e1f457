import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { Assignment } from '../../../src/peer/room/messages.ts'
import { SignalError } from '../../../src/peer/room/refusals.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { PeerError } from '../../../src/util/errors.ts'
import type { AdapterFacts } from '../../../src/worker/api.ts'
import type { RoomMember } from '../../../src/worker/page/member.ts'
import type { Listeners, PlayedOptions } from '../../support/played-member.ts'

const { assignment, newMember, settings, world } = await vi.hoisted(
  () => import('../../support/played-member.ts'),
)

describe('a tab that moves to another room', () => {
  const [from, to] = [newRoomLink(), newRoomLink()]
  const lobby = { maker: '0', members: [], epoch: 0 }
  const lobbies: unknown[] = []

  /** In the room `from`, as its host. */
  async function inRoom(options: PlayedOptions = {}): Promise<RoomMember> {
    lobbies.length = 0
    const on: Listeners = { lobby: (event) => lobbies.push(event.lobby), ...options.on }
    const member = newMember({ link: from, ...options, on })
    await member.join({} as AdapterFacts)
    world.lobby = lobby
    return member
  }

  /** The new room neither lets a tab in nor refuses it, until what this returns is called. */
  function asksAtTheNewRoom(): (error: Error) => void {
    let refuse: (error: Error) => void = () => undefined
    world.entered = (room) =>
      room === from.key
        ? Promise.resolve()
        : new Promise((_, reject) => {
            refuse = reject
          })
    return (error) => refuse(error)
  }

  it('leaves the old room once the server has removed the members', async () => {
    const member = await inRoom()
    await member.moveWithout(['7', '8'], to)
    expect(world.received).toEqual([['removeAndTell', ['7', '8'], { key: to.key }], ['bye']])
    expect(world.leftRooms).toEqual([from.key])
  })

  it('is back in the old room when the removal fails', async () => {
    world.removed = async () => {
      throw new SignalError('not-the-host', 'another tab is the host.')
    }
    const member = await inRoom()
    await expect(member.moveWithout(['7'], to)).rejects.toMatchObject({ refusal: 'not-the-host' })
    expect(world.leftRooms).toEqual([to.key])
    expect(lobbies).toEqual([lobby])
    member.close()
    expect(world.leftRooms).toEqual([to.key, from.key])
  })

  it('goes back where the old one begins a run during the removal, and takes part', async () => {
    const member = await inRoom()
    world.removed = async () => world.hear('assign', assignment(4, 2), from.key)
    await expect(member.moveWithout(['7'], to)).rejects.toThrow('a run begins in the old room')
    expect(world.leftRooms).not.toContain(from.key)
    expect(member.rank).toBe(0)
    world.hear('start', { epoch: 4, settings })
    expect(world.membership?.epoch).toBe(4)
  })

  it('sends the old room what changed before the removal failed', async () => {
    const member = await inRoom()
    world.removed = async () => {
      member.update({ name: 'Ada', hidden: true })
      throw new SignalError('not-the-host', 'another tab is the host.')
    }
    await expect(member.moveWithout(['7'], to)).rejects.toMatchObject({ refusal: 'not-the-host' })
    expect(world.infos.get(from.key)).toMatchObject({ name: 'Ada', hidden: true })
  })

  it('sends the new room what changed before the move and during it', async () => {
    const member = await inRoom()
    member.update({ name: 'Ada' })
    world.entered = async () => member.update({ hidden: true })
    await member.follow(to)
    expect(world.infos.get(to.key)).toMatchObject({ name: 'Ada', hidden: true })
  })

  it('measures its device once it is back from the new room', async () => {
    vi.useFakeTimers()
    let tries = 0
    const speed = async () => {
      tries++
      return null
    }
    world.removed = async () => {
      throw new SignalError('not-the-host', 'another tab is the host.')
    }
    const member = await inRoom({ measures: { speed } })
    await member.moveWithout(['7'], to).catch(() => undefined)
    await vi.advanceTimersByTimeAsync(5_000)
    expect(tries).toBe(1)
    member.close()
    vi.useRealTimers()
  })

  it('stays in the old one where the new one does not let it in', async () => {
    world.entered = async (room) => {
      if (room === to.key) throw new SignalError('declined', 'the host declined.')
    }
    const member = await inRoom()
    await expect(member.follow(to)).rejects.toMatchObject({ refusal: 'declined' })
    expect(world.leftRooms).toEqual([to.key])
    expect(lobbies).toEqual([lobby])
  })

  it('tries again where too many wait at the new one, and reports each refusal', async () => {
    vi.useFakeTimers()
    let triesLeft = 3
    world.entered = async (room) => {
      if (room === to.key && --triesLeft > 0) throw new SignalError('too-many', '20 others wait.')
    }
    const refused: string[] = []
    const member = await inRoom({ on: { refused: ({ error }) => refused.push(error.message) } })
    const moved = member.follow(to)
    await vi.runAllTimersAsync()
    await moved
    expect(refused).toHaveLength(2)
    expect(world.leftRooms.at(-1)).toBe(from.key)
    vi.useRealTimers()
  })

  it('leaves both where it is closed meanwhile', async () => {
    const refuse = asksAtTheNewRoom()
    const member = await inRoom()
    const moving = member.follow(to)
    await new Promise(setImmediate)
    member.close()
    refuse(new PeerError('signal.lost', 'left early'))
    await expect(moving).rejects.toThrow('left early')
    expect(world.leftRooms).toContain(from.key)
    expect(world.leftRooms).toContain(to.key)
  })

  it('refuses a start on the way, and starts once it is back', async () => {
    const refuse = asksAtTheNewRoom()
    const refused: string[] = []
    const member = await inRoom({ on: { refused: ({ error }) => refused.push(error.message) } })
    const moving = member.follow(to)
    await new Promise(setImmediate)
    member.start({})
    expect(refused).toEqual([expect.stringContaining('nothing was started')])
    expect(world.received).toEqual([])
    refuse(new SignalError('declined', 'the host declined.'))
    await expect(moving).rejects.toMatchObject({ refusal: 'declined' })
    world.received = []
    member.start({})
    expect(world.received).toEqual([['start', true]])
  })

  it('refuses a start in the new room before the old one has the message', async () => {
    const member = await inRoom()
    world.removed = async () => member.start({})
    await member.moveWithout(['7'], to)
    expect(world.received.map(([what]) => what)).toEqual(['removeAndTell', 'bye'])
    member.start({})
    expect(world.received.at(-1)).toEqual(['start', true])
  })

  it('goes back where the old one begins a run while it waits to be let in, and takes part', async () => {
    const refuse = asksAtTheNewRoom()
    const member = await inRoom()
    const moving = member.follow(to)
    await new Promise(setImmediate)
    world.hear('assign', assignment(4, 2), from.key)
    expect(world.leftRooms).toEqual([to.key])
    refuse(new PeerError('signal.lost', 'left early'))
    await expect(moving).rejects.toThrow('left early')
    expect(member.rank).toBe(0)
    world.hear('start', { epoch: 4, settings })
    expect(world.membership?.epoch).toBe(4)
  })

  it('learns after the move back that the old room has removed it', async () => {
    const removed: Error[] = []
    world.removed = async () => {
      world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'), from.key)
      throw new PeerError('signal.lost', 'ended')
    }
    const member = await inRoom({ on: { removed: ({ error }) => removed.push(error) } })
    await expect(member.moveWithout(['7'], to)).rejects.toThrow('ended')
    expect(removed).toMatchObject([{ refusal: 'removed', by: 'Ada' }])
  })

  it.each([true, false])(
    'says that the server is back where it was lost before, whether the new one lets it in: %s',
    async (isLetIn) => {
      let backs = 0
      const member = await inRoom({ on: { serverBack: () => backs++ } })
      world.hear('away', new PeerError('signal.lost', 'the connection ended'), from.key)
      world.entered = async () => {
        if (!isLetIn) throw new SignalError('declined', 'the host declined.')
      }
      await member.follow(to).catch(() => undefined)
      expect(backs).toBe(1)
    },
  )

  it('takes no new room after it was removed', async () => {
    const member = await inRoom()
    world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'), from.key)
    await expect(member.follow(to)).rejects.toThrow('left before it had entered')
    expect(world.leftRooms).toEqual([])
  })

  describe('and has not asked at the new one yet', () => {
    const entered: string[] = []
    beforeEach(() => {
      entered.length = 0
      world.entered = async (room) => void entered.push(room)
    })
    /** With a token it has to derive the name of the room first. */
    const inRoomWithToken = (options: PlayedOptions = {}) =>
      inRoom({ token: () => 'ab'.repeat(16), ...options })

    it('stays where the old one begins a run, and takes part once', async () => {
      const assignments: Assignment[] = []
      const member = await inRoomWithToken({
        on: { assigned: (event) => assignments.push(event.assignment) },
      })
      const moving = member.follow(to)
      world.hear('assign', assignment(4, 2), from.key)
      await expect(moving).rejects.toThrow('a run begins in the old room')
      world.hear('start', { epoch: 4, settings }, from.key)
      expect(world.membership?.epoch).toBe(4)
      expect(assignments).toHaveLength(1)
      expect(entered).toEqual([from.key])
    })

    it('stays where it has started a run itself, and can start again after a refusal', async () => {
      const member = await inRoomWithToken()
      member.start({})
      await expect(member.moveWithout(['7'], to)).rejects.toThrow('a run begins in the old room')
      world.hear('refused', new SignalError('not-the-host', 'another tab is the host.'), from.key)
      member.start({})
      expect(world.received).toEqual([
        ['start', true],
        ['start', true],
      ])
    })

    it('follows the host although a run of the old room has not ended here', async () => {
      const member = await inRoomWithToken()
      world.hear('assign', assignment(1, 2))
      world.hear('start', { epoch: 1, settings })
      await member.follow(to)
      expect(world.leftRooms).toEqual([from.key])
    })

    it('asks nowhere once it is removed, and reports it once', async () => {
      const removed: Error[] = []
      const member = await inRoomWithToken({ on: { removed: ({ error }) => removed.push(error) } })
      const moving = member.follow(to)
      world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'), from.key)
      await expect(moving).rejects.toThrow('left before it had entered')
      expect(entered).toEqual([from.key])
      expect(removed).toHaveLength(1)
    })

    it('asks nowhere once it is closed', async () => {
      const member = await inRoomWithToken()
      const moving = member.follow(to)
      member.close()
      await expect(moving).rejects.toThrow('left before it had entered')
      expect(entered).toEqual([from.key])
      expect(world.leftRooms).toEqual([from.key])
    })
  })
})
