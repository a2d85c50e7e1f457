import type { Trace } from '../trace.ts'
import { ElasticWorld } from './elastic-world.ts'
import type { ElasticScenario, FaultPlan } from './plan.ts'

/** What a seed came to. */
export interface ElasticOutcome {
  readonly violations: readonly string[]
  readonly injected: readonly FaultPlan[]
  /** Rosters that members entered, decisions that a person had to make, lives that reached the end. */
  readonly rosters: number
  readonly persons: number
  /** Old messages that arrived once more. */
  readonly echoes: number
  /** The longest that enough members were connected and ended no step. units: ms. */
  readonly longestMs: number
  readonly done: number
  /** The last state of those that trained to the end, where all devices give the same bits. */
  readonly hash: number | undefined
  readonly endMs: number
}

/** From the last fault until the run must be over: steps take longer where many ranks pass sums on in a ring. units: ms. */
const timeFor = ({ founders, joiners, steps, delayMs }: ElasticScenario): number =>
  240_000 + 8 * steps * delayMs * (founders.length + joiners.length)

/** Trains to the last step, whatever befalls the members, and checks what they promise each other. */
export async function simulateElastic(
  scenario: ElasticScenario,
  trace?: Trace,
): Promise<ElasticOutcome> {
  const world = new ElasticWorld(scenario, trace)
  const { env, lives } = world
  const maxMs = timeFor(scenario)
  const isOver = () => lives.every(({ isAlive }) => !isAlive)
  let joinersLeft = scenario.joiners.length
  await env.advance(0)
  while (!isOver() || joinersLeft > 0) {
    joinersLeft =
      scenario.joiners.length -
      lives.filter(({ isFounder, tab }) => !isFounder && tab >= scenario.founders.length).length
    if (isOver()) break
    const isLeft = await env.step()
    if (isLeft && env.now() < world.calmMs + maxMs) continue
    const waiting = world.alive.map(
      ({ id, step, undecided }) => `${id} at step ${step}${undecided ? ' (undecided)' : ''}`,
    )
    world.violate(
      `the run does not end within ${maxMs} ms of the last fault: ${waiting.join(', ')}`,
    )
    break
  }
  const done = lives.filter(({ end }) => end === 'done')
  const isMixed = new Set(lives.map(({ device }) => device)).size > 1
  for (const life of done) {
    const [first] = done
    if (life.step !== scenario.steps) world.violate(`${life.id} ended at step ${life.step}`)
    if (life.hash !== first!.hash)
      world.violate(`${life.id} ended with ${life.hash}, ${first!.id} with ${first!.hash}`)
  }
  const expected = isMixed ? undefined : await undisturbed(scenario, lives[0]!.device)
  if (done[0] && expected !== undefined && done[0].hash !== expected)
    world.violate(
      `${done[0].id} ended with ${done[0].hash}, one undisturbed member with ${expected}`,
    )
  world.end()
  return {
    violations: world.violations,
    injected: [...world.injected],
    rosters: world.rosters,
    persons: world.persons,
    echoes: world.echoes,
    longestMs: world.progress.longestMs,
    done: done.length,
    hash: isMixed ? undefined : done[0]?.hash,
    endMs: env.now(),
  }
}

/** By what the last state depends on: the run of one member that nothing befalls. */
const undisturbedHashes = new Map<string, number>()

async function undisturbed(scenario: ElasticScenario, device: number): Promise<number> {
  const { steps, virtualWorkers } = scenario
  const key = [steps, virtualWorkers, device].join()
  const known = undisturbedHashes.get(key)
  if (known !== undefined) return known
  const world = new ElasticWorld({
    ...scenario,
    founders: [{ device, machine: 0 }],
    joiners: [],
    faults: [],
    liar: undefined,
  })
  const [life] = world.lives
  while (life!.isAlive && (await world.env.step()));
  life!.group?.destroy('the simulation is over')
  undisturbedHashes.set(key, life!.hash)
  return life!.hash
}
