package org.apache.kafka.common.record.internal;

/**
 * Makes the package exist for every version: an import of {@code org.apache.kafka.common.record.*} and
 * of {@code org.apache.kafka.common.record.internal.*} then finds Kafka's classes where they were up
 * to 4.2 and where they are from 4.3 on.
 */
final class ImportableBeforeKafka43 {
    private ImportableBeforeKafka43() {
    }
}
