import type { Parameter } from '../../graph/trace/parameter.ts'
import { TabringError } from '../../util/errors.ts'

/**
 * Does what makes ranks share parameters: until it has ended, steps that read them are refused.
 *
 * `by`: the function that users call. errors: `graph.misuse` for a parameter that such a function works on already; those of `work`.
 */
export async function whileSharing<T>(
  by: string,
  parameters: readonly Parameter[],
  work: () => Promise<T>,
): Promise<T> {
  const taken = parameters.find(({ sharingBy }) => sharingBy)
  if (taken) {
    throw new TabringError(
      'graph.misuse',
      `${by}: ${taken.sharingBy} has begun to share ${taken.title}, and has not ended. Await it first: await ${taken.sharingBy}(…).`,
    )
  }
  for (const parameter of parameters) parameter.sharingBy = by
  try {
    return await work()
  } finally {
    for (const parameter of parameters) parameter.sharingBy = undefined
  }
}
