import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import { choices, type Settings } from '../split/settings.ts'
import { microBatchesOf, simulated } from '../split/simulated.ts'
import type { Training } from '../split/use-training.ts'

export interface SplitFacts {
  readonly settings: Settings
  readonly training: Pick<Training, 'stage' | 'step'>
}

const devices = 4

const msOf = (settings: Settings): number => simulated(settings, microBatchesOf(settings)).endMs

/** Returns whether no other split makes the simulated step shorter. */
export const isFastest = (settings: Settings): boolean =>
  choices.split.every((split) => msOf(settings) <= msOf({ ...settings, split }))

export const tooLarge: Lesson<SplitFacts> = {
  number: 5,
  title: 'A model too large for one',
  about: 'A network can be divided over machines by its layers, and a pipeline keeps them busy.',
  address: `demos/split/?devices=${devices}&split=120`,
  idea: [
    'So far every machine held the whole network. The largest ones do not fit into one machine, so their [layers] are divided: the first machine has the first layers and passes its results to the second, as in a factory.',
    'Here four devices have a quarter of the layers each, and the [batch] goes through as one piece.',
  ],
  prediction: {
    question: 'How much of the time does each of the four devices compute?',
    choices: [
      'All of it: each has something to do.',
      'About a quarter: it waits while the others have the batch.',
      'About half: forward it waits, backward it does not.',
    ],
    right: 1,
  },
  goals: [
    {
      words: 'Press Train, 20 steps, and look at the strips: grey is waiting.',
      isReached: ({ training, settings }) => settings.devices === devices && training.step >= 20,
    },
    {
      words: 'Move the split size until the batch is cut into 8 pieces or more.',
      isReached: ({ settings }) => settings.devices === devices && microBatchesOf(settings) >= 8,
    },
    {
      words: 'In the last panel, on separate devices, find the split with the shortest step.',
      isReached: ({ settings }) => settings.devices === devices && isFastest(settings),
    },
  ],
  answer: [
    'In one piece, the batch is at one device at a time, so each waits for three quarters of the step. Cut into [micro-batches], the second device works on the first piece while the first device has the second one.',
    'With more pieces the waiting at the beginning and the end gets smaller, but each piece costs something to begin. So the best number lies in between. All ways take the same steps: the losses agree.',
  ],
  forTeacher: {
    prepare:
      'Each pupil opens the lesson alone. The page needs WebGPU; where a computer has none, two share one that has.',
    mistake: 'That four machines with a quarter each are four times as fast.',
    questions: [
      [
        'Four people wash, dry, fold and put away one basket. How is this like the lesson?',
        'One basket: three always wait. Four small baskets: after a short while all work.',
      ],
      [
        'Which is better for a small network, this or lesson 2?',
        'Lesson 2: it fits into each machine, and nobody waits for the layer before. Pipelines are for what does not fit.',
      ],
    ],
  },
}
