import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Gaps } from '../../../src/trainer/watch/between-steps.ts'
import { startTask } from '../../support/task-ranks.ts'

const config = { demo: 'playground', steps: 10, batchSize: 12, bucketCapMb: 1 } as const
const open = () => new ReferenceRuntime()

test('one piece goes through in each gap, in the order of asking; all of them while it is open', async () => {
  const gaps = new Gaps()
  const [owner, other] = [{}, {}]
  const log: string[] = []
  const ask = (name: string, of = owner) =>
    gaps.run(of, async () => {
      log.push(name)
      return name
    })
  expect(await ask('open')).toBe('open')
  await gaps.close()
  const pieces = [
    ask('a'),
    ask('b'),
    gaps.run(owner, () => Promise.reject(new Error('c fails'))),
    ask('d'),
  ]
  pieces[2].catch(() => undefined)
  expect(gaps.isWaiting).toBe(true)
  await gaps.one()
  log.push('step')
  await gaps.one()
  log.push('step')
  await gaps.one()
  expect(log).toEqual(['open', 'a', 'step', 'b', 'step'])
  await expect(pieces[2]).rejects.toThrow('c fails')
  gaps.open()
  expect(await pieces[3]).toBe('d')
  await gaps.close()
  const refused = ask('never')
  const stays = ask('e', other)
  gaps.refuse(owner, new Error('gone'))
  await expect(refused).rejects.toThrow('gone')
  await gaps.one()
  expect(await stays).toBe('e')
  expect(log).toEqual(['open', 'a', 'step', 'b', 'step', 'd', 'e'])
})

test('closing waits for the piece that is under way', async () => {
  const gaps = new Gaps()
  let finish = () => undefined as undefined
  const log: string[] = []
  const piece = gaps.run(
    gaps,
    () =>
      new Promise<void>((resolve) => {
        finish = () => {
          log.push('piece')
          resolve()
          return undefined
        }
      }),
  )
  await Promise.resolve()
  const closed = gaps.close().then(() => log.push('closed'))
  await Promise.resolve()
  finish()
  await Promise.all([piece, closed])
  expect(log).toEqual(['piece', 'closed'])
})

test.each([1, 2])(
  '%i ranks: queries are answered during training and after the end, and change no bits',
  async (size) => {
    const quiet = await startTask(size, config, open)
    const wanted = await Promise.all(quiet.ranks.map(({ end }) => end))
    quiet.close()

    const { ranks, close } = await startTask(size, config, open)
    const [{ trainer, until, events, end }] = ranks
    await expect(trainer.query('boundary', { side: 4 })).rejects.toMatchObject({
      code: 'graph.misuse',
    })
    await until('step')
    const stepsNow = () => events.filter(({ event }) => event === 'step').length
    // Several who ask, one of them wrongly, one for what there is not.
    const asked = [
      trainer.query('boundary', { side: 4 }),
      trainer.query('boundary', { side: 4 }),
      trainer.query('points', undefined),
      trainer.query('boundary', { side: 1 }),
      trainer.query('weights', {}),
    ]
    const answers = await Promise.allSettled(asked)
    expect(stepsNow()).toBeLessThan(config.steps)
    const reasons = answers.map((answer) =>
      answer.status === 'rejected' ? String(answer.reason) : '',
    )
    expect(reasons).toEqual([
      '',
      '',
      '',
      expect.stringContaining('side must be a whole number from 2 to 256, got 1'),
      expect.stringContaining(
        'query: expected boundary or points or hidden or part of Playground, got weights',
      ),
    ])
    // Each says whose model it was: one run goes between two steps, so the second is of a later one.
    const [first, second] = answers
      .slice(0, 2)
      .map((answer) => (answer.status === 'fulfilled' ? Number(answer.value.step) : Number.NaN))
    expect(first).toBeGreaterThanOrEqual(1)
    expect(second).toBe(first + 1)
    const results = await Promise.all(ranks.map((rank) => rank.end))
    expect(results.map(({ paramHash }) => paramHash)).toEqual(
      wanted.map(({ paramHash }) => paramHash),
    )
    await end
    const last = await Promise.all(
      ranks.map(({ trainer }) => trainer.query('boundary', { side: 4 })),
    )
    expect(last.map(({ step }) => step)).toEqual(ranks.map(() => config.steps))
    const grids = last.map(({ probabilities }) => probabilities)
    expect(grids[0]).toHaveLength(16)
    for (const grid of grids) expect(grid).toEqual(grids[0])
    close()
    await expect(trainer.query('boundary', { side: 4 })).rejects.toMatchObject({
      code: 'graph.misuse',
    })
  },
)

test.each(['fsdp', 'pp=2'])(
  'with %s queries are refused while ranks have parts of the model, and see the whole at the end',
  async (parallel) => {
    const dp = await startTask(2, config, open)
    await Promise.all(dp.ranks.map(({ end }) => end))
    const whole = await dp.ranks[0].trainer.query('boundary', { side: 4 })
    dp.close()

    const { ranks, close } = await startTask(2, { ...config, parallel }, open)
    await ranks[0].until('step')
    await expect(ranks[0].trainer.query('boundary', { side: 4 })).rejects.toThrow(
      'boundary needs the whole model, and each rank has a part of it until the run ends',
    )
    await Promise.all(ranks.map(({ end }) => end))
    for (const { trainer } of ranks) {
      const { step, probabilities } = await trainer.query('boundary', { side: 4 })
      expect(step).toBe(config.steps)
      const values = probabilities as Float32Array
      values.forEach((value, i) => {
        expect(value).toBeCloseTo((whole.probabilities as Float32Array)[i], 3)
      })
    }
    close()
  },
)
