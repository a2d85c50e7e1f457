import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import type { Run } from '../../src/ui/state/run.ts'
import type { Snapshot } from '../../src/ui/state/snapshot.ts'

const sawLeave = (run: Run | null) => run?.changes.some(({ left }) => left.length > 0) ?? false
const sawCome = (run: Run | null) => run?.changes.some(({ came }) => came.length > 0) ?? false

export const lostRank: Lesson<Snapshot> = {
  number: 4,
  title: 'One is lost',
  about: 'Many machines continue to train when one of them disappears.',
  address: '?demo=playground&epochs=4000',
  idea: [
    'The more machines take part, the more often one of them fails: a lid is closed, the network drops, a battery is empty. The ring is then broken, and every [rank] waits for a sum that will never come.',
    'All ranks hold the same numbers. Every two seconds or so, they agree on a [step] whose numbers all of them keep.',
  ],
  prediction: {
    question: 'Three tabs train. One is closed in the middle of a step. What do the others do?',
    choices: [
      'They end with an error: a part of the network is gone.',
      'They begin again at step 0.',
      'They go back a little, and go on as two.',
    ],
    right: 2,
  },
  goals: [
    {
      words: 'Bring three tabs or computers into the room, and press Start.',
      isReached: ({ run }) => run !== null && run.worldSize > 2 && run.step > 0,
    },
    {
      words: 'Close one of them, not this one, and watch the step number here.',
      isReached: ({ run }) =>
        sawLeave(run) && run!.regrouped !== null && run!.step > run!.regrouped.step,
    },
    {
      words: 'Open the invitation again: somebody comes back in the middle of the run.',
      isReached: ({ run }) => sawCome(run),
    },
  ],
  answer: [
    'Nothing is lost but the last steps, because no rank holds a part that the others lack. The ones that remain agree on who is still there, close the ring without the lost one, and continue from the step that all of them kept.',
    'A newcomer gets the numbers from the others, and is a rank like any other from the next step on. Data centres do the same when one of thousands of GPUs breaks, several times a day.',
  ],
  forTeacher: {
    prepare:
      'One room for the class, opened on the projector from the lesson’s link. Agree on who closes the lid.',
    mistake: 'That each machine holds a piece of the network, so that a lost one leaves a hole.',
    questions: [
      [
        'Why do they go back some steps, and do not simply go on?',
        'When the ring broke, some ranks may already have had the step’s sum and others not. They return to the last numbers that all of them surely have.',
      ],
      [
        'What if the tab that opened the room is closed?',
        'The others go on just the same: they are linked to each other, not through it.',
      ],
    ],
  },
}
