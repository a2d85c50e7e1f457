/** The field's words, each explained for a pupil. Texts mark a word by square brackets: `the [gradients] are averaged`. */
export const terms = {
  accuracy: 'The share of answers that are right.',
  'all-gather':
    'The second half of an all-reduce: finished sums are handed on until every rank has all of them.',
  'all-reduce':
    'A sum over all ranks, of which each rank ends up with the result. Here it adds the gradients.',
  attention:
    'How a language model weighs the earlier characters while it guesses the next one: more weight means a closer look.',
  batch: 'The examples that one step learns from.',
  chunk: 'A part of an array that travels as a unit. A ring of 4 ranks cuts its array into 4.',
  device: 'What computes: a graphics chip (GPU), or a part of one.',
  epoch: 'One pass through all examples for training. A run has many.',
  exchange: 'The part of a step in which the ranks send each other gradients.',
  'global batch': 'The examples of one step on all ranks together.',
  gradient:
    'For each number of the network: which way, and how strongly, the loss grows if that number grows. A step goes the other way.',
  'held out':
    'Kept for the test: the network never trains on these examples, so they show what it does with new ones.',
  latency: 'How long a message is on its way, however short it is.',
  layer: 'One stage of a network. It takes the numbers of the layer before and makes new ones.',
  'learning rate': 'How far each step goes. Too small takes long, too large jumps past the goal.',
  loss: 'One number for how wrong the network is. Training makes it smaller; 0 would be perfect.',
  'micro-batch': 'A piece of a batch. While one device works on it, the next has the piece before.',
  parameter: 'A number inside the network that training changes. All of them are what it knows.',
  pipeline: 'Devices in a row, as in a factory: each has some layers and passes its results on.',
  rank: 'One of the machines or tabs that train together. They are numbered from 0.',
  'reduce-scatter':
    'The first half of an all-reduce: chunks go around and grow into sums, until each rank holds one that is complete.',
  step: 'One small change of the network: look at a batch, find the gradient, move against it.',
} as const satisfies Readonly<Record<string, string>>

export type TermName = keyof typeof terms

/** Returns the term that a word is a form of (`Gradients`, `held-out`), or null. */
export function termOf(word: string): TermName | null {
  const small = word.toLowerCase()
  const forms = [small, small.replace('-', ' '), small.replace(/s$/, ''), small.replace(/es$/, '')]
  return (forms.find((form) => Object.hasOwn(terms, form)) as TermName | undefined) ?? null
}

/** Returns the parts of a text: those at odd places are marked words. */
export const partsOf = (text: string): string[] => text.split(/\[([^\]]+)\]/)
