import { expect, test, vi } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { refusalToShow } from '../../../src/ui/room/shown-queries.ts'
import { type Shown, ShowsRun } from '../../../src/ui/room/shows-run.ts'
import { Joiner, unpacked } from '../../../src/ui/room/watch-words.ts'
import { training } from '../../support/page-states.ts'

test('refusalToShow refuses a query when it has no bounds or gives away what a person gave', () => {
  const shipped = parseTrainConfig({ demo: 'playground' })
  const given = parseTrainConfig({ demo: 'playground', data: 'given' })
  const boundary = { name: 'boundary', input: { side: 64 } }
  const points = { name: 'points', input: null }
  expect(refusalToShow(boundary, given)).toBeUndefined()
  expect(refusalToShow(points, shipped)).toBeUndefined()
  expect(refusalToShow(points, given)).toMatch(/given by a person/)
  for (const side of [63, 100_000])
    expect(refusalToShow({ name: 'boundary', input: { side } }, shipped)).toMatch(/with this input/)
  expect(refusalToShow({ name: 'toString', input: null }, shipped)).toMatch(/with this input/)
})

test('ShowsRun asks its rank what it may show alone, and sends again when sending has failed', async () => {
  const query = vi.fn(async () => ({ step: 3 }))
  const sent: unknown[] = []
  let failures = 1
  let arrived: () => void = () => undefined
  const shows = new ShowsRun({
    store: { snapshot: training(2, 3, 0) },
    query,
    send(message) {
      arrived()
      if (failures-- > 0) throw new Error('no box')
      sent.push(message)
    },
  })
  const asks = [
    { name: 'boundary', input: { side: 65 } },
    { name: 'filters', input: null },
  ]
  await new Promise<void>((resolve) => {
    arrived = resolve
    shows.take({ knows: null, asks })
  })
  await vi.waitFor(() => {
    shows.take({ knows: null, asks })
    expect(sent).not.toEqual([])
  })
  const texts = sent.map((part) => new Joiner().take(part as never))
  const { since, run, answers } = (await unpacked(texts[0]!)) as Shown
  expect([since, Object(run).step]).toEqual([null, 3])
  for (const { key, failure } of answers)
    expect(key.includes('boundary')).toBe(failure !== undefined)
  expect(query.mock.calls.every(([name]: string[]) => name === 'filters')).toBe(true)
})
