import { checkNumber, isNotNegative } from '../util/options.ts'

/** errors: `config.invalid` unless what keeps a divisor from 0 is a number that can, or undefined. */
export const checkEps = (where: string, eps: number | undefined): void =>
  checkNumber(where, 'eps', eps, isNotNegative, 'finite and at least 0')
