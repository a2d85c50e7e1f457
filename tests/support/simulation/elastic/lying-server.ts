import type { Link } from '../../../../src/peer/link/link.ts'
import { memoryPair } from '../../../../src/peer/link/memory-link.ts'
import { lastBallot } from '../../../../src/peer/room/ballots.ts'
import { memberOf } from '../../../../src/peer/room/lives.ts'
import type { VirtualEnv } from '../../../../src/util/virtual-env.ts'
import type { Draw } from '../draw.ts'
import { drawLie, frameOf, type Truth } from './liar.ts'
import type { Life } from './life.ts'
import type { ElasticScenario } from './plan.ts'

interface ServerWorld {
  readonly env: VirtualEnv
  readonly scenario: ElasticScenario
  readonly lives: readonly Life[]
  /** The epoch with which a life has come. */
  epochOf(life: Life): number
  /** One above all that there were. */
  nextEpoch(): number
  note(text: string): void
}

/** A tab with the room's link that does as the server likes. */
interface Accomplice {
  readonly id: string
  readonly ends: Link[]
}

/**
 * A server that says any of what it may say about any member, to any member, at any moment: that one has left or is away, which half came first, that
 * a newcomer has come, under any name. It opens no link between two honest tabs, whose offers are sealed, but accomplices in the room do.
 */
export class LyingServer {
  readonly #world: ServerWorld
  readonly #draw: Draw
  readonly #accomplices: Accomplice[] = []

  constructor(world: ServerWorld, draw: Draw) {
    this.#world = world
    this.#draw = draw
  }

  /** One lie to one member, or to all. */
  lie(truthFor: (self: string) => Truth): void {
    const draw = this.#draw
    const { lives, scenario } = this.#world
    const members = lives.filter(({ isAlive, elastic }) => isAlive && elastic)
    if (members.length === 0) return
    const to = draw.isOneIn(2) ? members : [draw.pick(members)]
    const about = draw.pick(lives)
    const { ballots } = truthFor(about.id)
    const ballot = draw.pick([...ballots, 0, lastBallot])
    // Of members whose links are lost it is believed.
    const isAlone = scenario.faults.length === 0
    const kind = draw.pick([
      'away',
      'half',
      'in its place',
      'accomplice',
      'accomplice',
      ...(isAlone ? ['left', 'its tab'] : []),
    ])
    this.#world.note(
      `!! the server lies to ${to.map(({ id }) => id).join(' ')}: ${kind} ${about.id} ${ballot}`,
    )
    const tell = (say: (member: Life) => void) => {
      for (const one of to) one.place.event(() => say(one))
    }
    if (kind === 'left') tell(({ elastic }) => elastic.memberIsDead(memberOf(about.id), ballot))
    else if (kind === 'away') tell(({ elastic }) => elastic.doubt(memberOf(about.id)))
    else if (kind === 'half') {
      const first = draw.some(
        lives.map(({ id }) => id),
        draw.whole(0, lives.length),
      )
      tell(({ elastic }) => elastic.firstHalf(ballot, draw.pick([first, null, undefined])))
    } else if (kind === 'in its place') this.#place(about.id, this.#world.epochOf(about), to)
    else if (kind === 'its tab') {
      const epoch = this.#world.nextEpoch()
      this.#place(`${memberOf(about.id)}.${1000 + epoch}`, epoch, to)
    } else if (this.#accomplices.length === 0 || draw.isOneIn(4)) {
      const epoch = this.#world.nextEpoch()
      this.#place(`m98.${1000 + epoch}`, epoch, to)
    }
    if (this.#accomplices.length > 0) this.#speak(truthFor)
  }

  /** Links a tab to these members, which the server names so. */
  #place(id: string, epoch: number, to: readonly Life[]): void {
    const { env, scenario } = this.#world
    const ends = to.map((member) => {
      const [there, back] = memoryPair(env, { delayMs: () => scenario.delayMs })
      back.onmessage = () => undefined
      const link = member.place.linked(there)
      member.place.event(() => member.admit({ id, member: memberOf(id), link }, epoch))
      return back
    })
    this.#accomplices.push({ id, ends })
    for (const end of ends) end.send(frameOf({ type: 'hello', id }))
  }

  /** An accomplice sends one lie over one of its links, or over all. */
  #speak(truthFor: (self: string) => Truth): void {
    const draw = this.#draw
    const { id, ends } = draw.pick(this.#accomplices)
    const lie = drawLie(draw, truthFor(id))
    for (const end of draw.isOneIn(2) ? ends : [draw.pick(ends)])
      if (end.room() > 0) end.send(frameOf(lie))
    this.#world.note(`!! ${id} lies: ${JSON.stringify(lie)}`)
  }
}
