package org.apache.kafka.common.utils.internals;

/** As {@code ImportableBeforeKafka43}, for what was in {@code org.apache.kafka.common.utils} up to 4.3. */
final class ImportableBeforeKafka44 {
    private ImportableBeforeKafka44() {
    }
}
