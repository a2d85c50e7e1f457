import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import type { Moment } from '../ring/moment.ts'
import type { Story } from '../ring/story.ts'

export interface RingFacts {
  readonly story: Story | undefined
  readonly moment: Moment | undefined | false
}

/** Ranks of the ring in the lesson. */
const few = 4
const many = 16

/** Returns whether a run was played to its end. */
const hasPlayed = ({ story, moment }: RingFacts, is: (story: Story) => boolean): boolean =>
  story !== undefined && Boolean(moment) && (moment as Moment).ms >= story.endMs && is(story)

export const ringLesson: Lesson<RingFacts> = {
  number: 3,
  title: 'What the ring does, and what it costs',
  about: 'In a ring, more machines hardly send more; but each waits for more messages.',
  address: `demos/ring/?ranks=${few}&length=1000`,
  idea: [
    'Averaging needs a sum over all [ranks]. If all sent their numbers to one of them, that one would drown. In a ring each rank talks to the next one only: the array is cut into as many [chunks] as there are ranks, and while one chunk goes by, each rank adds its own part to it.',
    'Once around, each chunk is complete at one rank. Once more around, and everybody has all of them. This page runs the real code on a slow clock.',
  ],
  prediction: {
    question: `${few} ranks sum their arrays in a ring; then ${many} ranks do. How much more does each rank send?`,
    choices: [
      'Four times as much.',
      'About as much as before.',
      'A quarter: the others share the work.',
    ],
    right: 1,
  },
  goals: [
    {
      words: `Play the ring of ${few} ranks to its end, and note the bytes per rank and the time.`,
      isReached: (facts) =>
        hasPlayed(
          facts,
          ({ settings, algorithm }) => settings.ranks === few && algorithm === 'ring',
        ),
    },
    {
      words: `Set ${many} ranks, and play again. Compare both numbers.`,
      isReached: (facts) =>
        hasPlayed(
          facts,
          ({ settings, algorithm }) => settings.ranks === many && algorithm === 'ring',
        ),
    },
    {
      words: `Find an algorithm with which ${many} ranks take less than half of that time.`,
      isReached: (facts) =>
        hasPlayed(
          facts,
          ({ settings, endMs }) =>
            // A ring of that many waits for 2 (N - 1) messages in a row.
            settings.ranks === many && endMs < (many - 1) * settings.latencyMs,
        ),
    },
  ],
  answer: [
    'A rank sends 2 (N − 1) / N times its array: 1.5 times for 4 ranks, 1.875 times for 16, and never twice, for any number. That is why rings carry the training of large networks.',
    'The price is waiting: a chunk goes around twice, so 16 ranks wait for 30 messages in a row and 4 ranks for 6. Where arrays are short and links slow, sending to all at once (direct) is quicker. The trainer measures the links, and chooses.',
  ],
  forTeacher: {
    prepare: 'Nothing: the page computes in each pupil’s browser, also without a GPU.',
    mistake:
      'That a ring of more ranks sends more, because the chunks go farther. They also get smaller.',
    questions: [
      [
        'Play a ring by hand: 4 pupils, each with 4 numbers on paper. How many slips does each pass on?',
        'Six: three while sums grow, three while finished sums go around.',
      ],
      [
        'All ranks hold the same bits at the end. Why is that not obvious?',
        'Rounding depends on the order of additions. Here each chunk is added in one order, and copied to the others.',
      ],
    ],
  },
}
