import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import { last } from '../../src/ui/parts/series.ts'
import type { Snapshot } from '../../src/ui/state/snapshot.ts'

export const oneMachine: Lesson<Snapshot> = {
  number: 1,
  title: 'One machine learns',
  about: 'A network learns by many small steps, and steps that are too large teach it nothing.',
  address: '?demo=playground',
  idea: [
    'The plane has points of two classes, wound into each other as spirals. A network of 354 numbers says for each place which class belongs there. At first those numbers are random, so it guesses.',
    'In each [step] it looks at 96 points, measures how wrong it is (the [loss]), and changes each number a little in the direction that makes it less wrong (the [gradient]). How far it goes is the [learning rate].',
  ],
  prediction: {
    question: 'What happens if each step goes 50 times as far?',
    choices: [
      'It learns the same, 50 times as fast.',
      'It jumps about, and stays worse.',
      'Nothing changes: only the direction counts.',
    ],
    right: 1,
  },
  goals: [
    {
      words: 'Press Start, and watch until 95 % of the [held-out] points are right.',
      isReached: ({ run }) => run !== null && last(run.accuracy) >= 0.95,
    },
    {
      words:
        'Once it has ended, set the [learning rate] to 1 (it was 0.02) and train again: 200 steps.',
      settings: { lr: '1' },
      isReached: ({ run }) => (run?.config?.lr ?? 0) >= 0.5 && run!.step >= 200,
    },
  ],
  answer: [
    'The [gradient] is only right close by. A small step goes downhill; a very large one leaps over the valley to a place that may be higher, and the next leaps again. The loss jumps instead of falling.',
    'Held-out points are never trained on. They show whether the network found the shape, or only learned the points by heart.',
  ],
  forTeacher: {
    prepare: 'Nothing: each pupil opens the lesson alone. Two may share a computer.',
    mistake: 'That learning faster is only a question of larger steps, or of a faster computer.',
    questions: [
      [
        'What is in the network when it begins?',
        'Random numbers, which know nothing of the points. So the plane stays grey until the first step.',
      ],
      [
        'Why are some points hollow?',
        'They are held out. A test with known questions would only check the memory.',
      ],
      [
        'What would a learning rate of 0.0001 do?',
        'The loss would fall, but so slowly that 500 steps would not be enough. Try it in the Lab.',
      ],
    ],
  },
}
