import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import type { Snapshot } from '../../src/ui/state/snapshot.ts'

/** Steps after which a plane shows what it has learned. */
const enough = 300

const trained = ({ run }: Snapshot, strategy: string): boolean =>
  run !== null &&
  run.worldSize > 1 &&
  run.config?.strategy === strategy &&
  run.config.partition === 'own-slice' &&
  run.step >= enough

export const sharedBatch: Lesson<Snapshot> = {
  number: 2,
  title: 'Two machines share a batch',
  about: 'Machines that average their gradients learn from data that they have never seen.',
  address: '?demo=playground&strategy=alone&partition=own-slice',
  idea: [
    'Now several machines train the same network, and each has the points of one sector of the plane alone. Each machine is called a [rank]: rank 0, rank 1 and so on. They begin with the same random numbers.',
    'First they do not talk. Then they do: in each step every rank works out its [gradient], all gradients are averaged, and every rank takes the same step. No rank sends its points to another.',
  ],
  prediction: {
    question: 'Two ranks train without talking. What does the plane of each look like?',
    choices: [
      'The same on both: they have the same network.',
      'Right in its own sector only, so the two disagree.',
      'Wrong everywhere: half of the points is not enough.',
    ],
    right: 1,
  },
  goals: [
    {
      words: 'Get a second rank: open the invitation in another tab, or on the next computer.',
      isReached: ({ lobby }) => (lobby?.members.length ?? 0) > 1,
    },
    {
      words: `Train with the [exchange] off, ${enough} steps, and compare the planes of the two.`,
      isReached: (snapshot) => trained(snapshot, 'alone'),
    },
    {
      words: `Switch the exchange on, and train again, ${enough} steps.`,
      settings: { strategy: 'ddp' },
      isReached: (snapshot) => trained(snapshot, 'ddp'),
    },
  ],
  answer: [
    'Alone, each rank knows its sector and guesses in the other one. With averaged gradients both take the same steps, so they hold the same numbers, to the last bit, and these fit both sectors.',
    'The average of two half [batches] is the gradient of the whole batch. So two ranks take the step that one machine with all points would take, and each does half of the work.',
  ],
  forTeacher: {
    prepare:
      'Pairs: one opens the lesson and shares its link or short code, the other opens that. With the whole class in one room, open it on the projector.',
    mistake:
      'That the ranks send each other their points, or their finished networks. They send gradients, in each step.',
    questions: [
      [
        'Why do both planes look the same with the exchange on?',
        'Same numbers to begin with, and the same average added in each step.',
      ],
      [
        'A hospital may not give away its patients’ data. Could two of them still train one network?',
        'In principle as here: only gradients leave. But gradients can give away something of the data, too, so that alone is no protection.',
      ],
    ],
  },
}
