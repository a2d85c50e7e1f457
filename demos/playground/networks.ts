/** What the playground's models are made of, in their names: `tanh-8-8` has two hidden layers of 8 units; without units it is 16-16. */
export const activations = { tanh: 'tanh', relu: 'ReLU', sigmoid: 'sigmoid' } as const
export const hiddenLayers = ['16-16', '4', '8-8', '32-32', '160-160-160'] as const

export type Activation = keyof typeof activations

/** The name of one of meta's models. */
export const modelOf = (activation: Activation, hidden: string): string =>
  hidden === hiddenLayers[0] ? activation : `${activation}-${hidden}`

/** The parts of such a name. */
export function partsOf(model: string): {
  readonly activation: Activation
  readonly hidden: string
  /** By layer. */
  readonly units: readonly number[]
} {
  const [activation, ...named] = model.split('-')
  const hidden = named.join('-') || hiddenLayers[0]
  return { activation: activation as Activation, hidden, units: hidden.split('-').map(Number) }
}
