import { describe, expect, it } from 'vitest'
import { course } from '../../../demos/lessons/course.ts'
import { ringLesson } from '../../../demos/lessons/ring.ts'
import { tooLarge } from '../../../demos/lessons/too-large.ts'
import { momentOf } from '../../../demos/ring/moment.ts'
import { settingsIn } from '../../../demos/ring/settings.ts'
import { tellRun } from '../../../demos/ring/story.ts'
import { defaults, settingsIn as splitIn } from '../../../demos/split/settings.ts'
import { lessonAddress, lessonCount, lessonParameter } from '../../../src/ui/lesson/lesson.ts'

// The training page's lessons: tests/all/e2e/lessons.spec.ts.

describe('the course', () => {
  it('has lessons in the order of their numbers when it is listed, each with a right choice and goals', () => {
    expect(course.map(({ number }) => number)).toEqual(
      Array.from({ length: lessonCount }, (_, at) => at + 1),
    )
    for (const { prediction, goals } of course) {
      expect(prediction.choices[prediction.right]).toBeTruthy()
      expect(goals.length).toBeGreaterThan(1)
    }
  })

  it('has settings that pages take when lessons are opened', () => {
    const queries = course.map((lesson) => new URL(lessonAddress(lesson), 'https://page.example/'))
    expect(queries.map(({ searchParams }) => searchParams.get(lessonParameter))).toEqual([
      ...'12345',
    ])
    expect(settingsIn(queries[2].search).refused).toEqual([])
    expect(splitIn(queries[4].search).refused).toEqual([])
  })
})

describe('the lesson of the ring', () => {
  const { settings } = settingsIn(
    new URL(lessonAddress(ringLesson), 'https://page.example/').search,
  )
  const reachedBy = async (some: Partial<typeof settings>, at: 'start' | 'end') => {
    const story = await tellRun({ ...settings, ...some })
    const moment = momentOf(story, at === 'end' ? story.endMs : 0)
    return ringLesson.goals.map(({ isReached }) => isReached({ story, moment }))
  }

  it('reaches a goal when its ring has been played, and not before', async () => {
    expect(await reachedBy({}, 'start')).toEqual([false, false, false])
    expect(await reachedBy({}, 'end')).toEqual([true, false, false])
    expect(await reachedBy({ ranks: 16 }, 'end')).toEqual([false, true, false])
  })

  it('reaches the last goal when another algorithm is quicker', async () => {
    expect(await reachedBy({ ranks: 16, algorithm: 'direct' }, 'end')).toEqual([false, false, true])
  })
})

describe('the lesson of the pipeline', () => {
  const reachedBy = (split: number, step: number, devices = 4) =>
    tooLarge.goals.map(({ isReached }) =>
      isReached({
        settings: { ...defaults, devices, split },
        training: { stage: 'training', step },
      }),
    )

  it('reaches a goal when there are enough steps, enough pieces, or the best split', () => {
    expect(reachedBy(120, 19)).toEqual([false, false, false])
    expect(reachedBy(120, 20)).toEqual([true, false, false])
    expect(reachedBy(15, 20)).toEqual([true, true, false])
    expect(reachedBy(8, 0)).toEqual([false, true, true])
    expect(reachedBy(8, 20, 2)).toEqual([false, false, false])
  })
})
